"""Builds the indexes of pending migrations without blocking writes.

Migrations run in one transaction, in which PostgreSQL builds an index under a lock that every write waits for: minutes,
for a large table. So a script may name indexes as `BUILT_CONCURRENTLY`: they are built before the transaction, and the
script itself creates those that are still missing: all of them for a new database, and those on columns that an
earlier pending script adds, which are still empty. What else would read a large table under such a lock, a script may
do in `prepare_concurrently`, which must find out what is left to do.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import sqlalchemy as sa

from services.chassis.database.advisory_lock import OnWait, take_lock

# Name of an index to its table and columns.
Indexes = Mapping[str, tuple[str, str]]

_IS_VALID: Final = sa.text(
    "SELECT indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
    " JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relname = :name AND nspname = :schema"
)


def build_concurrently(
    engine: sa.Engine,
    schema: str,
    indexes: Iterable[Indexes],
    preparations: Iterable[Callable[[sa.Connection], None]] = (),
    on_wait: OnWait = lambda reason: None,
) -> None:
    """Builds the indexes whose columns exist, and runs preparations, each statement in a transaction of its own.
    Replicas that start at the same time take turns."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        take_lock(connection, "pg_try_advisory_lock", f"legato:{schema}:indexes", on_wait)
        try:
            existing = sa.inspect(connection).get_multi_columns(schema=schema)
            for some in indexes:
                for name, (table, columns) in some.items():
                    known = {column["name"] for column in existing.get((schema, table), ())}
                    if known.issuperset(columns.split(", ")):
                        _build(connection, schema, name, f"{table} ({columns})")
            for prepare in preparations:
                prepare(connection)
        finally:
            connection.execute(sa.text("SELECT pg_advisory_unlock_all()"))


def _build(connection: sa.Connection, schema: str, name: str, on: str) -> None:
    is_valid = connection.scalar(_IS_VALID, {"name": name, "schema": schema})
    if is_valid:
        return
    if is_valid is not None:
        # What an interrupted build leaves behind is never used, and would be taken for the index.
        connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY {name}")
    connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {name} ON {on}")
