import os
from pathlib import Path

import psycopg
import pytest

from cli.backups.postgres_programs import PostgresFailed, dump_schemas, require_program, restore_schemas
from tests.support.servers.postgres import Postgres


@pytest.fixture(autouse=True)
def programs(postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{postgres_server.binaries}:{os.environ['PATH']}")


def test_dump_has_the_named_schemas_as_of_its_snapshot(
    postgres_server: Postgres, postgres_url: str, tmp_path: Path
) -> None:
    with psycopg.connect(postgres_url) as connection:
        for schema in ("books", "others"):
            connection.execute(f"CREATE SCHEMA {schema}".encode())
            connection.execute(f"CREATE TABLE {schema}.numbers AS SELECT 1 AS number".encode())
    with psycopg.connect(postgres_url) as reading, psycopg.connect(postgres_url) as writing:
        reading.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        [snapshot] = reading.execute("SELECT pg_export_snapshot()").fetchone() or ()
        writing.execute("INSERT INTO books.numbers VALUES (2)")
        writing.commit()
        dump_schemas(postgres_url, snapshot, ["books"], tmp_path / "dump")
    restored = postgres_server.create_database()
    restore_schemas(restored, tmp_path / "dump")
    with psycopg.connect(restored) as connection:
        assert connection.execute("SELECT number FROM books.numbers").fetchall() == [(1,)]
        assert connection.execute("SELECT to_regnamespace('others')").fetchall() == [(None,)]
    with pytest.raises(PostgresFailed, match="already exists"):
        restore_schemas(restored, tmp_path / "dump")
    postgres_server.drop_database(restored)


def test_password_is_in_no_command_line(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    spy = tmp_path / "pg_dump"
    spy.write_text(f'#!/bin/sh\necho "pg_dump (PostgreSQL) 99"\necho "$@" "$PGPASSWORD" "$PGUSER" >> {told}\n')
    spy.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    url = postgres_url.replace("legato@", "legato:p%40ss@")
    dump_schemas(url, "1", ["auth"], tmp_path / "dump")
    arguments = told.read_text().splitlines()[-1]
    assert arguments.endswith("p@ss legato")
    assert arguments.count("p@ss") == 1


def test_server_that_is_away_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(PostgresFailed, match=r"^PostgreSQL: connection .* failed: .*$"):
        require_program(f"postgresql://legato@/legato?host={tmp_path}", "pg_dump")
