"""Leaves nothing of deleted rows in SQLite's files. PostgreSQL overwrites them when it vacuums."""

import asyncio
from typing import Any, Final

import sqlalchemy as sa

from services.chassis.database.database import Database

# Each waits for concurrent readers.
ATTEMPTS: Final = 3


def overwrite_what_is_deleted(database: Database) -> None:
    """Has all connections from now on overwrite rows that are deleted, and the earlier values of those that change."""
    if database.is_sqlite and not sa.event.contains(database.engine, "connect", _overwrite):
        sa.event.listen(database.engine, "connect", _overwrite)
        database.engine.dispose()


def _overwrite(connection: Any, record: object) -> None:
    connection.execute("PRAGMA secure_delete = ON")


async def empty_write_log(database: Database) -> None:
    """Truncates SQLite's write-ahead log; does nothing for PostgreSQL."""
    if database.is_sqlite:
        await asyncio.to_thread(_truncate, database)


def _truncate(database: Database) -> None:
    with database.engine.connect() as connection:
        for _ in range(ATTEMPTS):
            is_busy, _, _ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
            if not is_busy:
                return
