"""Reads the sums of an account's entries, against which its audit is shown."""

from typing import Final

import sqlalchemy as sa

from services.metering.credit.store.closings import read_open_period, read_opening
from services.metering.credit.store.tables import ledger
from services.metering.store.schema import total

_NEWEST: Final = sa.select(sa.func.max(ledger.c.entry_id)).where(ledger.c.account_id == sa.bindparam("account_id"))


def find_last_entry(connection: sa.Connection, account_id: str) -> int:
    """Returns the id of the newest entry; 0 if there is none."""
    return connection.execute(_NEWEST, {"account_id": account_id}).scalar_one() or 0


def read_totals(connection: sa.Connection, account_id: str) -> tuple[int, int]:
    """Returns the number of an account's entries, and their sum."""
    period = read_open_period(connection)
    account = read_opening(connection, account_id, period.start_us).account
    query = sa.select(sa.func.count(), total(ledger.c.customer_nanos)).where(
        ledger.c.account_id == account_id,
        ledger.c.entry_id > period.after_id,
        ledger.c.recorded_at_us >= period.start_us,
    )
    entries, nanos = connection.execute(query).one()
    return account.total_entries + entries, account.balance_nanos + nanos
