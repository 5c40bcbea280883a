"""A backup of auth's database, as rows, and its restore into the same database."""

from typing import Any

import sqlalchemy as sa

from services.auth.core.store.tables import metadata
from services.chassis.database.database import Database


class Backup:
    def __init__(self, database: Database) -> None:
        """Copies all rows, on one snapshot."""
        self._database = database
        with database.transaction(writes=False) as connection:
            self._rows = {table.name: _rows(connection, table) for table in metadata.sorted_tables}

    def restore(self) -> None:
        with self._database.transaction(writes=True) as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(sa.text(f"DELETE FROM {table.name}"))
            for table in metadata.sorted_tables:
                plain = sa.table(table.name, *(sa.column(column.name) for column in table.columns))
                if self._rows[table.name]:
                    connection.execute(plain.insert(), self._rows[table.name])


def _rows(connection: sa.Connection, table: sa.Table) -> list[dict[str, Any]]:
    columns: list[sa.ColumnClause[Any]] = [sa.column(column.name) for column in table.columns]
    return [dict(row) for row in connection.execute(sa.select(*columns).select_from(sa.table(table.name))).mappings()]
