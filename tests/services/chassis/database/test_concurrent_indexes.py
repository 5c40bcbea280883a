"""Indexes that PostgreSQL builds while the old version writes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from services.auth.service import MIGRATIONS as AUTH_MIGRATIONS
from services.chassis.database.concurrent_indexes import build_concurrently
from services.chassis.database.database import Database
from services.metering.service import MIGRATIONS
from tests.e2e.upgrades.release_data import load_postgresql

INDEXES = {"things_by_owner": ("things", "owner, thing_id")}


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    database = Database(postgres_url, "things")
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA things")
        connection.exec_driver_sql("CREATE TABLE things (thing_id bigint PRIMARY KEY, owner text NOT NULL)")
        connection.exec_driver_sql("INSERT INTO things SELECT n, 'a' FROM generate_series(1, 10) AS n")
    yield database
    database.close()


def validity_of(database: Database) -> list[bool]:
    query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('things_by_owner')"
    with database.engine.connect() as connection:
        return list(connection.scalars(sa.text(query)))


def test_index_is_built_once_and_only_where_its_columns_are(database: Database) -> None:
    # A pending script creates the others.
    pending = {"none": ("nothing", "owner"), "new": ("things", "owner, colour")}
    for _ in range(2):
        build_concurrently(database.engine, "things", [pending, INDEXES])
    assert validity_of(database) == [True]


def test_index_that_an_interrupted_build_left_is_built_again(database: Database) -> None:
    # A unique index over equal values fails, and stays as an invalid one.
    with (
        pytest.raises(sa.exc.IntegrityError),
        database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
    ):
        connection.exec_driver_sql("CREATE UNIQUE INDEX CONCURRENTLY things_by_owner ON things (owner)")
    assert validity_of(database) == [False]
    build_concurrently(database.engine, "things", [INDEXES])
    assert validity_of(database) == [True]


def migrations_up_to(last: int, folder: Path) -> Path:
    """Copies the scripts of metering up to a revision; later ones change the same tables."""
    (folder / "versions").mkdir(parents=True)
    for script in (MIGRATIONS / "versions").glob("v*.py"):
        if int(script.name[1:5]) <= last:
            (folder / "versions" / script.name).write_bytes(script.read_bytes())
    (folder / "env.py").write_bytes((MIGRATIONS / "env.py").read_bytes())
    return folder


def test_migration_finds_the_index_of_an_existing_ledger_built(postgres_url: str, tmp_path: Path) -> None:
    database = Database(postgres_url, "metering")
    database.migrate(migrations_up_to(4, tmp_path / "before"))
    statements: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda c, cursor, text, *_: statements.append(text))
    database.migrate(migrations_up_to(15, tmp_path / "after"))
    database.close()
    built = [text for text in statements if "INDEX" in text and "ledger_by_account" in text]
    # The rest is about the partitions that the table becomes the first of.
    assert built[:2] == [
        "CREATE INDEX CONCURRENTLY ledger_by_account ON ledger (account_id, entry_id)",
        "CREATE INDEX IF NOT EXISTS ledger_by_account ON ledger (account_id, entry_id)",
    ]


def test_indexes_of_the_last_releases_audit_log_and_keys_are_built_before_its_tables_are_locked(
    postgres_url: str,
) -> None:
    load_postgresql("release_0_2_0", postgres_url)
    database = Database(postgres_url, "auth")
    statements: list[str] = []
    sa.event.listen(database.engine, "before_cursor_execute", lambda c, cursor, text, *_: statements.append(text))
    database.migrate(AUTH_MIGRATIONS)
    database.close()
    for name in ("audit_events_by_object", "api_keys_by_account_expiry"):
        [built, created] = [text for text in statements if "INDEX" in text and f" {name} " in text]
        assert built.startswith("CREATE INDEX CONCURRENTLY ")
        assert created.startswith("CREATE INDEX IF NOT EXISTS ")
