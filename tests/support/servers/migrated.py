"""Databases with a service's tables: migrated once in a test process, and then copied or emptied for the next test.

The migrations of a service take longer than most tests of its store. Tests of migrations themselves use the fixtures
`database_url` and `postgres_url` of tests/conftest.py, which begin with nothing.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
from psycopg import sql

from services.chassis.database.database import Database
from tests.support.servers.postgres import Postgres

# All of a schema that a test could change beside rows, and the database's own settings.
FINGERPRINT: LiteralString = """
SELECT md5(string_agg(line, E'\\n' ORDER BY line)) FROM (
  SELECT format('%%s %%s %%s', relname, relkind, relacl) AS line
    FROM pg_class WHERE relnamespace = %(schema)s::regnamespace
  UNION ALL SELECT format('%%s %%s %%s %%s %%s', attrelid::regclass, attname, atttypid, attnotnull, attisdropped)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = %(schema)s::regnamespace
  UNION ALL SELECT format('%%s %%s %%s', tgrelid::regclass, tgname, tgenabled)
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = %(schema)s::regnamespace
  UNION ALL SELECT format('%%s %%s', conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE connamespace = %(schema)s::regnamespace
  UNION ALL SELECT md5(prosrc) FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace
  UNION ALL SELECT nspname FROM pg_namespace
  UNION ALL SELECT setconfig::text FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase
    WHERE datname = current_database()
) AS lines
"""
TABLES: LiteralString = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
RESTART_SEQUENCES: LiteralString = """
SELECT setval(format('%%I.%%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE schemaname = %s
"""
END_OTHERS: LiteralString = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def migrated_sqlite(file: Path, schema: str, migrations: Path) -> str:
    """Writes a database that is empty but for its tables; returns its URL."""
    file.write_bytes(_sqlite_bytes(schema, migrations))
    return f"sqlite:///{file}"


@cache
def _sqlite_bytes(schema: str, migrations: Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "migrated.db")
        _migrate(f"sqlite:///{file}", schema, migrations)
        return file.read_bytes()


def _migrate(url: str, schema: str, migrations: Path) -> None:
    database = Database(url, schema)
    try:
        database.migrate(migrations)
    finally:
        database.close()


class MigratedPostgres:
    """Lends databases of one server. Those that come back are emptied and lent again, or dropped where a test changed
    more than rows: migrations take several times as long as a copy, and a copy as long as emptying."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._templates: dict[str, _Template] = {}
        self._idle: dict[str, list[str]] = {}

    @contextmanager
    def lend(self, schema: str, migrations: Path) -> Iterator[str]:
        template = self._templates.get(schema) or self._migrate_template(schema, migrations)
        idle = self._idle.setdefault(schema, [])
        url = idle.pop() if idle else self._server.create_database(template.url)
        yield url
        if template.restore(url):
            idle.append(url)
        else:
            self._server.drop_database(url)

    def _migrate_template(self, schema: str, migrations: Path) -> "_Template":
        url = self._server.create_database()
        _migrate(url, schema, migrations)
        template = self._templates[schema] = _Template(url, schema)
        return template


class _Template:
    """A database after its migrations, and what is in it."""

    def __init__(self, url: str, schema: str) -> None:
        self.url = url
        self._schema = schema
        with psycopg.connect(url) as connection:
            self._fingerprint = self._take_fingerprint(connection)
            self._tables = [name for (name,) in connection.execute(TABLES, [schema])]
            # Rows that migrations write.
            self._seeds = {name: rows for name in self._tables if (rows := self._read(connection, name))}

    def restore(self, url: str) -> bool:
        """Makes a copy what it was at first; returns whether it could."""
        try:
            connection = psycopg.connect(url)
        except psycopg.OperationalError:
            # Connections were forbidden.
            return False
        with connection:
            connection.execute(END_OTHERS)
            if self._take_fingerprint(connection) != self._fingerprint:
                return False
            # Rows of the books cannot be deleted: triggers see to that.
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute(RESTART_SEQUENCES, [self._schema])
            if changed := self._changed(connection):
                names = sql.SQL(", ").join(map(self._qualified, changed))
                connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))
            for name, rows in self._seeds.items():
                if not self._read(connection, name):
                    places = sql.SQL(", ").join(sql.Placeholder() * len(rows[0]))
                    insert = sql.SQL("INSERT INTO {} VALUES ({})").format(self._qualified(name), places)
                    connection.cursor().executemany(insert, rows)
        return True

    def _changed(self, connection: psycopg.Connection) -> list[str]:
        """Names the tables with other rows than after the migrations."""
        looks = [
            sql.SQL("SELECT {} WHERE EXISTS (SELECT FROM {})").format(sql.Literal(name), self._qualified(name))
            for name in self._tables
            if name not in self._seeds
        ]
        filled = [name for (name,) in connection.execute(sql.SQL(" UNION ALL ").join(looks))]
        return filled + [name for name, rows in self._seeds.items() if self._read(connection, name) != rows]

    def _read(self, connection: psycopg.Connection, name: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql.SQL("SELECT * FROM {}").format(self._qualified(name))).fetchall()

    def _qualified(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._schema, name)

    def _take_fingerprint(self, connection: psycopg.Connection) -> str:
        [(fingerprint,)] = connection.execute(FINGERPRINT, {"schema": self._schema}).fetchall()
        return cast("str", fingerprint)
