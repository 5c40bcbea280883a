"""What is deleted is gone: SQLite would else leave it in free pages of its file, and in the log of its writes."""

import asyncio

import sqlalchemy as sa

from services.chassis.database.database import Database

# Each waits for those who read at that moment.
ATTEMPTS = 3


def delete_for_good(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    """How many rows there were. Followed by `empty_write_log` once that is committed."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")
    return connection.execute(table.delete().where(*conditions)).rowcount


async def empty_write_log(database: Database) -> None:
    """PostgreSQL keeps house by itself."""
    if database.is_sqlite:
        await asyncio.to_thread(_truncate, database)


def _truncate(database: Database) -> None:
    with database.engine.connect() as connection:
        for _ in range(ATTEMPTS):
            is_busy, _, _ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
            if not is_busy:
                return
