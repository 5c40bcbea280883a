"""Metering's rows about the requests of an account, read from its database as it is."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from services.chassis.database.database import open_database
from services.metering.credit.records import Entry, Hold
from services.metering.credit.store.tables import holds, ledger


def read_holds(data: Path, account_id: str, database_url: str = "") -> list[Hold]:
    """The oldest first."""
    query = sa.select(holds).where(holds.c.account_id == account_id).order_by(holds.c.reserved_at_us)
    return [Hold(*row) for row in _read(data, database_url, query)]


def read_entries(data: Path, account_id: str, database_url: str = "") -> list[Entry]:
    """Reads those of requests, so no grants and adjustments; oldest first."""
    query = (
        sa.select(*[column for column in ledger.c if column is not ledger.c.entry_id])
        .where(ledger.c.account_id == account_id, ledger.c.kind.in_(("charge", "late_charge", "loss")))
        .order_by(ledger.c.entry_id)
    )
    return [Entry(*row) for row in _read(data, database_url, query)]


def _read(data: Path, database_url: str, query: sa.Select[Any]) -> list[Any]:
    database = open_database("metering", database_url, data)
    try:
        with database.transaction(writes=False) as connection:
            return list(connection.execute(query))
    finally:
        database.close()
