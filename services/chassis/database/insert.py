"""Inserts rows that may be there already."""

from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy.dialects import sqlite


def insert_into(connection: sa.Connection, table: sa.Table) -> "sqlite.Insert":
    """Returns the INSERT of the connection's dialect, which has `on_conflict_do_nothing()` and
    `on_conflict_do_update()`. A process does not import the dialect that it does not use."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects.sqlite import insert
    else:
        # What is used of both is the same.
        from sqlalchemy.dialects.postgresql import insert  # type: ignore[assignment]
    return insert(table)
