"""Reads databases of which it is not known yet whether they are ours: those of a backup."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.database.outages import DatabaseUnavailable


class ContentUnknown(DatabaseUnavailable):
    """A file is no database, or one without the tables that were looked for."""

    def __init__(self, schema: str, reason: str) -> None:
        super().__init__()
        self.add_note(f"the store {schema} is none of ours, or damaged: {reason}")


@contextmanager
def inspected(database: Database) -> Iterator[sa.Connection]:
    """Opens a transaction that reads; raises ContentUnknown with the driver's reason if a query fails."""
    driver: Any = database.engine.dialect.loaded_dbapi
    try:
        with database.transaction(writes=False) as connection:
            yield connection
    except (sa.exc.SQLAlchemyError, driver.Error) as error:
        reason = str(getattr(error, "orig", error)).partition("\n")[0]
        raise ContentUnknown(database.schema, reason) from None
