"""The tables of the ledger, as the migrations create them, and conditions on them that several statements share. The
columns of most tables are the fields of a record, in their order."""

from typing import Final

import sqlalchemy as sa

from services.chassis.database.records import columns_of
from services.metering.credit.ledger.closings import AccountClosing, Closing, RetentionState
from services.metering.credit.ledger.notices import AccountNotice
from services.metering.credit.ledger.spend import Spend
from services.metering.credit.prices import Price
from services.metering.credit.records import AccountBalance, AccountChange, Claim, Entry, Hold, OwedChange
from services.metering.store.schema import metadata
from services.rules.usage import COLUMNS

# What a counter of usage counts.
COUNTED: Final = ("requests", *COLUMNS, "cost_nanos", "loss_nanos")

accounts = sa.Table("accounts", metadata, *columns_of(AccountBalance, "account_id"))
holds = sa.Table("holds", metadata, *columns_of(Hold, "request_id"))
claims = sa.Table("claims", metadata, *columns_of(Claim, "account_id", "key_digest"))
ledger = sa.Table("ledger", metadata, sa.Column("entry_id", sa.BigInteger, primary_key=True), *columns_of(Entry))


def _counters(name: str, *keys: str) -> sa.Table:
    key = [sa.Column(each, sa.BigInteger if each == "hour_us" else sa.Text, primary_key=True) for each in keys]
    return sa.Table(name, metadata, *key, *(sa.Column(each, sa.BigInteger) for each in COUNTED))


# The usage of a key and class in an hour.
usage_hours = _counters("usage_hours", "account_id", "hour_us", "key_id", "class_id")
# The sums of all keys. Triggers on `usage_hours` keep them: nothing else writes here.
account_hours = _counters("account_hours", "account_id", "hour_us", "class_id")

spends = sa.Table("spends", metadata, *columns_of(Spend, "spend_id"))

notices = sa.Table(
    "notices", metadata, *columns_of(AccountNotice, "notice_id"), sa.Column("acknowledged_at_us", sa.BigInteger)
)

price_versions = sa.Table(
    "price_versions",
    metadata,
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("effective_from_us", sa.BigInteger),
)

prices = sa.Table(
    "prices",
    metadata,
    sa.Column("version", sa.BigInteger, primary_key=True),
    sa.Column("class_id", sa.Text, primary_key=True),
    *columns_of(Price),
)

closings = sa.Table("closings", metadata, *columns_of(Closing, "month_us"))
account_closings = sa.Table("account_closings", metadata, *columns_of(AccountClosing, "month_us", "account_id"))

# Grants and adjustments whose entries were pruned: a repeat, or the reversal of one, must still find them. Columns are
# the first fields of an entry.
pruned_credits = sa.Table("pruned_credits", metadata, *columns_of(Entry, "kind", "request_id")[:8])
owed_changes = sa.Table("owed_changes", metadata, *columns_of(OwedChange, "request_id"))

# What auth has not taken over for the audit log yet.
account_changes = sa.Table(
    "account_changes", metadata, sa.Column("change_id", sa.Text, primary_key=True), *columns_of(AccountChange)
)

# One row.
retention = sa.Table(
    "retention",
    metadata,
    sa.Column("retention_id", sa.Integer, primary_key=True),
    sa.Column("lease_holder", sa.Text),
    sa.Column("lease_until_us", sa.BigInteger),
    *columns_of(RetentionState),
)

# A literal, so that every plan can use the partial index of live holds.
IS_LIVE: Final = holds.c.state == sa.literal_column("'held'")
# The entries that are no charges, or late ones. A literal, so that every plan can use the partial index of such
# entries. The time is always positive: it makes SQLite prefer that index to the one of all entries of an account.
IS_RARE: Final = sa.and_(ledger.c.kind != sa.literal_column("'charge'"), ledger.c.recorded_at_us >= 0)
IS_LATE: Final = sa.and_(IS_RARE, ledger.c.kind == sa.literal_column("'late_charge'"))


def is_its_price(priced: sa.FromClause) -> sa.ColumnElement[bool]:
    return sa.and_(prices.c.version == priced.c.price_version, prices.c.class_id == priced.c.class_id)
