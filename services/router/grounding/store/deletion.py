"""Deletes securely: SQLite would otherwise keep the data in free pages and in its write-ahead log."""

import asyncio

import sqlalchemy as sa

from services.chassis.database.database import Database

# Each waits for concurrent readers.
ATTEMPTS = 3


def delete_for_good(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    """Deletes rows and returns their number. Call `empty_write_log` after the commit."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")
    return connection.execute(table.delete().where(*conditions)).rowcount


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
