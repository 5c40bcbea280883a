"""Reads the usage of an account by key: exactly what the hourly counters have, of a long period in few rows.

They are the statistics of the keys and the entries behind those. Statistics have a charge in the hour in which it was
booked, counters in that of the request's first one: such late charges are few, and are moved.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import add
from typing import Any, Final

import sqlalchemy as sa

from services.metering.credit.store.closings import read_retention
from services.metering.credit.store.tables import IS_LATE, ledger, usage_hours
from services.metering.reports.additions import Addition
from services.metering.reports.spans import starts_of
from services.metering.reports.store.entries import read_recent
from services.metering.reports.store.tables import usage_days
from services.metering.reports.store.usage import ACCOUNT_ID, END_US, REPORTED, START_US, is_in_period
from services.metering.store.schema import AnyQuery, total
from services.rules.usage import COLUMNS

# Behind more entries than these, as after an upgrade, the counters are added up.
RECENT_MOST: Final = 20_000
# Requests, the columns of usage, and cost.
KeySums = tuple[int, ...]
_SUMS: Final = ("requests", *COLUMNS, "charged_nanos")


def read_key_sums(connection: sa.Connection, account_id: str, start_us: int, end_us: int) -> dict[str, KeySums]:
    """Returns the sums of all keys that were used in a period of whole hours."""
    retention, recent = read_retention(connection), read_recent(connection, RECENT_MOST, account_id)
    # The hours before it are summed up by month, or their entries are pruned.
    kept_us = max(start_us, retention.ledger_pruned_before_us, retention.usage_marked_before_us)
    kept_us = end_us if recent is None else min(kept_us, end_us)
    sums: defaultdict[str, KeySums] = defaultdict(lambda: (0,) * len(REPORTED))
    periods = {"account_id": account_id, "start_us": start_us, "end_us": kept_us}
    _add_all(sums, connection.execute(_COUNTED, periods))
    if kept_us < end_us:
        kept = {"account_id": account_id, "start_us": kept_us, "end_us": end_us}
        for span, starts_us in starts_of([(kept_us, end_us)]).items():
            _add_all(sums, connection.execute(_SUMMED, kept | {"span": span, "starts_us": starts_us}))
        _add_all(sums, (_row_of(each) for each in recent or () if kept_us <= each.at_us < end_us))
        _add_all(sums, connection.execute(_MOVED, kept))
    # What was moved may be all of a key, and some keys only failed.
    return {key_id: each for key_id, each in sums.items() if key_id and any(each)}


def _add_all(sums: defaultdict[str, KeySums], rows: Iterable[Sequence[Any]]) -> None:
    for key_id, *added in rows:
        sums[key_id] = tuple(map(add, sums[key_id], added))


def _row_of(addition: Addition) -> tuple[str | int, ...]:
    return (addition.group.key_id, *(addition.sums.get(name, 0) for name in _SUMS))


_COUNTED: Final = (
    sa.select(usage_hours.c.key_id, *(total(usage_hours.c[name]) for name in REPORTED))
    .where(is_in_period(usage_hours))
    .group_by(usage_hours.c.key_id)
)
_SUMMED: Final = (
    sa.select(usage_days.c.key_id, *(total(usage_days.c[name]) for name in _SUMS))
    .where(
        usage_days.c.of_key == sa.true(),
        usage_days.c.span == sa.bindparam("span"),
        usage_days.c.start_us.in_(sa.bindparam("starts_us", expanding=True)),
        usage_days.c.account_id == ACCOUNT_ID,
    )
    .group_by(usage_days.c.key_id)
)


def _moved() -> AnyQuery:
    """Returns what late charges add to a period as they are counted, without what they add as they were booked."""
    entry = ledger.c
    is_counted = sa.and_(entry.hour_us >= START_US, entry.hour_us < END_US)
    is_booked = sa.and_(entry.recorded_at_us >= START_US, entry.recorded_at_us < END_US)
    sign = sa.case((is_counted, 1), else_=0) - sa.case((is_booked, 1), else_=0)
    booked = (*(entry[name] for name in _SUMS[:-1]), -entry.customer_nanos)
    return (
        sa.select(entry.key_id, *(total(sign * each) for each in booked))
        .where(entry.account_id == ACCOUNT_ID, IS_LATE)
        .group_by(entry.key_id)
    )


_MOVED: Final = _moved()
