"""Reads an account's counters one by one, and the entries that were added to them since."""

import operator
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.compiled_query import CompiledQuery
from services.metering.ledger.records import CHARGES
from services.metering.store.credits import IS_RARE
from services.metering.store.tables import ledger, usage_hours

_ACCOUNT_ID: Final = sa.bindparam("account_id", type_=sa.Text)
_START_US: Final = sa.bindparam("start_us", type_=sa.BigInteger)
_END_US: Final = sa.bindparam("end_us", type_=sa.BigInteger)


class Counter(NamedTuple):
    """The usage of a key and class in an hour, or a part of it."""

    hour_us: int
    key_id: str
    class_id: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_nanos: int
    loss_nanos: int

    def plus(self, other: "Counter") -> "Counter":
        """Returns the sum of two parts of the same counter."""
        return Counter(*self[:3], *map(operator.add, self[3:], other[3:]))


class EntryMark(NamedTuple):
    """An entry of the ledger. The time is part of it, since SQLite uses ids again when all later entries are gone."""

    entry_id: int
    recorded_at_us: int


class EntriesSince(NamedTuple):
    # The last entry of the account; the one asked for, if none came later.
    last: EntryMark
    # What the entries after the one asked for have added to counters.
    counters: list[Counter]


def read_counters(connection: sa.Connection, account_id: str, start_us: int, end_us: int) -> list[Counter]:
    # Its rows have the same names: to make others of them would take longer than to read them.
    rows: list[Counter] = _COUNTERS.all(connection, account_id=account_id, start_us=start_us, end_us=end_us)
    return rows


def read_late_counters(connection: sa.Connection, account_id: str, start_us: int, end_us: int) -> list[Counter]:
    """Returns the part of the counters that later charges of requests are."""
    rows = _LATE.all(connection, account_id=account_id, start_us=start_us, end_us=end_us)
    return list(map(Counter._make, rows))


def read_last_entry(connection: sa.Connection, account_id: str) -> EntryMark | None:
    row = _LAST.first(connection, account_id=account_id)
    return None if row is None else EntryMark._make(row)


def read_entries_since(
    connection: sa.Connection, account_id: str, mark: EntryMark, entries_most: int
) -> EntriesSince | None:
    """Returns what came after an entry; None if there is no such entry in this snapshot, or there are too many.

    Whoever books locks the account's row first, so that the ids of its entries are in the order of the commits: a
    snapshot with an entry has all entries of the account with lower ids."""
    rows = _SINCE.all(connection, account_id=account_id, entry_id=mark.entry_id, most=entries_most + 2)
    if not rows or rows[0][:2] != mark or len(rows) > entries_most + 1:
        return None
    counters = [Counter._make(row[3:]) for row in rows[1:] if row.kind in CHARGES]
    return EntriesSince(EntryMark._make(rows[-1][:2]), counters)


def _added() -> list[sa.ColumnElement[Any]]:
    """Returns what an entry adds to the counter of its hour, key and class."""
    entry = ledger.c
    counts = (entry.requests, entry.prompt_tokens, entry.cached_tokens, entry.completion_tokens)
    return [*counts, (-entry.customer_nanos).label("cost_nanos"), (-entry.loss_nanos).label("lost_nanos")]


_COUNTERS: Final = CompiledQuery(
    sa.select(*(usage_hours.c[name] for name in Counter._fields)).where(
        usage_hours.c.account_id == _ACCOUNT_ID, usage_hours.c.hour_us >= _START_US, usage_hours.c.hour_us < _END_US
    )
)
_LATE: Final = CompiledQuery(
    sa.select(ledger.c.hour_us, ledger.c.key_id, ledger.c.class_id, *_added()).where(
        ledger.c.account_id == _ACCOUNT_ID,
        IS_RARE,
        ledger.c.kind == "late_charge",
        ledger.c.hour_us >= _START_US,
        ledger.c.hour_us < _END_US,
    )
)
_LAST: Final = CompiledQuery(
    sa.select(ledger.c.entry_id, ledger.c.recorded_at_us)
    .where(ledger.c.account_id == _ACCOUNT_ID)
    .order_by(ledger.c.entry_id.desc())
    .limit(1)
)
_SINCE: Final = CompiledQuery(
    sa.select(
        ledger.c.entry_id,
        ledger.c.recorded_at_us,
        ledger.c.kind,
        ledger.c.hour_us,
        ledger.c.key_id,
        ledger.c.class_id,
        *_added(),
    )
    .where(ledger.c.account_id == _ACCOUNT_ID, ledger.c.entry_id >= sa.bindparam("entry_id", type_=sa.BigInteger))
    .order_by(ledger.c.entry_id)
    .limit(sa.bindparam("most", type_=sa.BigInteger))
)
