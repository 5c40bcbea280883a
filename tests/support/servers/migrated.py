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

# All of a schema that a test could change beside rows, and the database's own settings. A copy has the object ids of
# its template, and what is made anew gets another.
FINGERPRINT: LiteralString = """
SELECT sum(hashtextextended(line, 0))::text FROM (
  SELECT concat_ws(' ', oid, relname, relkind, relacl) AS line
    FROM pg_class WHERE relnamespace = %(schema)s::regnamespace
  UNION ALL SELECT concat_ws(' ', attrelid, attname, atttypid, attnotnull, attisdropped)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = %(schema)s::regnamespace
  UNION ALL SELECT concat_ws(' ', tgrelid, tgname, tgenabled)
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = %(schema)s::regnamespace
  UNION ALL SELECT concat_ws(' ', oid, conname, convalidated)
    FROM pg_constraint WHERE connamespace = %(schema)s::regnamespace
  UNION ALL SELECT concat_ws(' ', oid, prosrc) FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace
  UNION ALL SELECT nspname FROM pg_namespace
  UNION ALL SELECT setconfig::text FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase
    WHERE datname = current_database()
  UNION ALL SELECT concat_ws(' ', datallowconn, datconnlimit) FROM pg_database WHERE datname = current_database()
) AS lines
"""
TABLES: LiteralString = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
# Rows are deleted from a small table, which stays as large as it was; the new files of TRUNCATE cost more than that.
SMALL_TABLE_BYTES = 1 << 18
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
        self._idle: dict[str, list[_Copy]] = {}

    @contextmanager
    def lend(self, schema: str, migrations: Path) -> Iterator[str]:
        template = self._templates.get(schema) or self._migrate_template(schema, migrations)
        idle = self._idle.setdefault(schema, [])
        copy = idle.pop() if idle else _Copy(self._server.create_database(template.url))
        yield copy.url
        if template.restore(copy):
            idle.append(copy)
        else:
            copy.disconnect()
            self._server.drop_database(copy.url)

    def close(self) -> None:
        for copies in self._idle.values():
            for copy in copies:
                copy.disconnect()

    def _migrate_template(self, schema: str, migrations: Path) -> "_Template":
        url = self._server.create_database()
        _migrate(url, schema, migrations)
        template = self._templates[schema] = _Template(url, schema)
        return template


class _Copy:
    """A database and a connection to it, which stays open: to connect, and to read the catalog for the first time,
    takes the server longer than to empty the tables."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection: psycopg.Connection | None = None

    def connection(self) -> psycopg.Connection:
        """Returns one that works, even if a test ended all of the database's connections."""
        if self._connection is not None:
            try:
                self._connection.execute("SELECT 1")
            except psycopg.OperationalError:
                self.disconnect()
        if self._connection is None:
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


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
            looks = [
                sql.SQL("SELECT {}, pg_total_relation_size({}) WHERE EXISTS (SELECT FROM {})").format(
                    sql.Literal(name), sql.Literal(f'"{schema}"."{name}"'), self._qualified(name)
                )
                for name in self._tables
            ]
            # Tables with rows, and their bytes.
            self._filled = sql.SQL(" UNION ALL ").join(looks).as_bytes(connection)

    def restore(self, copy: _Copy) -> bool:
        """Makes a copy what it was at first; returns whether it could."""
        try:
            connection = copy.connection()
        except psycopg.OperationalError:
            # Connections were forbidden.
            return False
        with connection.transaction():
            connection.execute(END_OTHERS)
            if self._take_fingerprint(connection) != self._fingerprint:
                return False
            # Rows of the books cannot be deleted: triggers see to that.
            connection.execute("SET LOCAL session_replication_role = replica")
            connection.execute(RESTART_SEQUENCES, [self._schema])
            self._empty(connection)
            for name, rows in self._seeds.items():
                if not self._read(connection, name):
                    places = sql.SQL(", ").join(sql.Placeholder() * len(rows[0]))
                    insert = sql.SQL("INSERT INTO {} VALUES ({})").format(self._qualified(name), places)
                    connection.cursor().executemany(insert, rows)
        return True

    def _empty(self, connection: psycopg.Connection) -> None:
        """Removes the rows of tables with other rows than after the migrations."""
        filled: dict[str, int] = dict(connection.execute(self._filled).fetchall())
        for name, rows in self._seeds.items():
            if name in filled and self._read(connection, name) == rows:
                del filled[name]
        if large := [self._qualified(name) for name, size_bytes in filled.items() if size_bytes > SMALL_TABLE_BYTES]:
            connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(sql.SQL(", ").join(large)))
        for name, size_bytes in filled.items():
            if size_bytes <= SMALL_TABLE_BYTES:
                connection.execute(sql.SQL("DELETE FROM {}").format(self._qualified(name)))

    def _read(self, connection: psycopg.Connection, name: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql.SQL("SELECT * FROM {}").format(self._qualified(name))).fetchall()

    def _qualified(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._schema, name)

    def _take_fingerprint(self, connection: psycopg.Connection) -> str:
        [(fingerprint,)] = connection.execute(FINGERPRINT, {"schema": self._schema}).fetchall()
        return cast("str", fingerprint)
