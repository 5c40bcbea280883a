"""Parts of statements that several stores share."""

from typing import Final

import sqlalchemy as sa

from services.metering.store.tables import holds, ledger

# A literal, so that every plan can use the partial index of live holds.
IS_LIVE: Final = holds.c.state == sa.literal_column("'held'")
# The entries that are no charges, or late ones. A literal, so that every plan can use the partial index of such
# entries. The time is always positive: it makes SQLite prefer that index to the one of all entries of an account.
IS_RARE: Final = sa.and_(ledger.c.kind != sa.literal_column("'charge'"), ledger.c.recorded_at_us >= 0)
IS_LATE: Final = sa.and_(IS_RARE, ledger.c.kind == sa.literal_column("'late_charge'"))


def total(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    # PostgreSQL sums integers to decimals, and nothing to null.
    return sa.cast(sa.func.coalesce(sa.func.sum(column), 0), sa.BigInteger)
