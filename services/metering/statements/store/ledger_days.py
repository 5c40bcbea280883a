"""Reads what changed an account's balance, by day: charges from the hourly counters, everything else entry by entry."""

import operator
from collections import defaultdict
from functools import lru_cache
from typing import Final, NamedTuple

import sqlalchemy as sa

from services.metering.credit.records import DAY_US, Entry
from services.metering.credit.store.closings import read_opening
from services.metering.credit.store.tables import IS_LATE, IS_RARE, account_hours, ledger
from services.metering.reports.store.usage import ACCOUNT_ID, END_US, START_US, Offsets, bucket_start, is_in_period
from services.metering.statements.store.entries import StatementEntry
from services.metering.store.schema import AnyQuery, total

_BOOKINGS: Final = ("grant", "adjustment")
_IS_BOOKING: Final = sa.and_(IS_RARE, sa.or_(*(ledger.c.kind == kind for kind in _BOOKINGS)))
# The order of bookings, and a place before all of them.
_ORDER: Final = (ledger.c.recorded_at_us, ledger.c.entry_id)
BEFORE_ALL: Final = (-1, -1)
_IS_RARE_OF_ACCOUNT: Final = sa.and_(ledger.c.account_id == ACCOUNT_ID, IS_RARE)


class DaySums(NamedTuple):
    """The sums of one day, which begins at a midnight of local time."""

    local_us: int
    requests: int = 0
    charged_nanos: int = 0
    credited_nanos: int = 0
    loss_nanos: int = 0


def read_day_sums(
    connection: sa.Connection, account_id: str, start_us: int, end_us: int, offsets: Offsets
) -> list[DaySums]:
    """Returns the days of a period, which begins and ends on the hour; those that have an entry, the oldest first.

    Counters include a later charge of a request in the hour of its first one; such late charges are few, and are moved
    to the day on which they were booked."""
    days: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    period = {"account_id": account_id, "start_us": start_us, "end_us": end_us}

    def add(local_us: int, *, requests: int = 0, charged: int = 0, credited: int = 0, loss: int = 0) -> None:
        days[local_us] = [*map(operator.add, days[local_us], (requests, charged, credited, loss))]

    queries = _day_queries(tuple(offsets))
    for local_us, requests, cost_nanos, loss_nanos in connection.execute(queries.counted, period):
        add(local_us, requests=requests, charged=cost_nanos, loss=loss_nanos)
    for local_us, kind, nanos, loss_nanos in connection.execute(queries.rare, period):
        if kind in _BOOKINGS:
            # A return beyond what was free is a loss, too.
            add(local_us, credited=nanos, loss=-loss_nanos)
        else:
            add(local_us, charged=-nanos, loss=-loss_nanos)
    for local_us, nanos, loss_nanos in connection.execute(queries.late, period):
        add(local_us, charged=nanos, loss=loss_nanos)
    return [DaySums(local_us, *sums) for local_us, sums in sorted(days.items()) if any(sums)]


class _DayQueries(NamedTuple):
    counted: AnyQuery
    # Entries other than charges, also by their kind.
    rare: AnyQuery
    # Late charges by the hour that they count in.
    late: AnyQuery


# To build them takes longer than to run them.
@lru_cache(maxsize=64)
def _day_queries(offsets: tuple[tuple[int, int], ...]) -> _DayQueries:
    hours, entry = account_hours.c, ledger.c
    counted = (hours.requests, hours.cost_nanos, hours.loss_nanos)
    booked = (entry.customer_nanos, entry.loss_nanos)
    recorded_us = entry.recorded_at_us
    return _DayQueries(
        sa.select(bucket_start(hours.hour_us, DAY_US, offsets), *map(total, counted))
        .where(is_in_period(account_hours))
        .group_by(sa.text("1")),
        sa.select(bucket_start(recorded_us, DAY_US, offsets), entry.kind, *map(total, booked))
        .where(_IS_RARE_OF_ACCOUNT, recorded_us >= START_US, recorded_us < END_US)
        .group_by(sa.text("1"), entry.kind),
        sa.select(bucket_start(entry.hour_us, DAY_US, offsets), *map(total, booked))
        .where(is_in_period(ledger), IS_LATE)
        .group_by(sa.text("1")),
    )


def read_opening_balance(connection: sa.Connection, account_id: str, start_us: int) -> int:
    """Returns the balance of the last closing before an hour, and the sum of what was booked since."""
    opening = read_opening(connection, account_id, start_us)
    opened_us = opening.at_us
    is_own, nanos = sa.and_(ledger.c.account_id == account_id, IS_RARE), ledger.c.customer_nanos
    recorded_us, counted_us, hour_us = ledger.c.recorded_at_us, ledger.c.hour_us, account_hours.c.hour_us
    queries = (
        sa.select(total(nanos)).where(is_own, recorded_us >= opened_us, recorded_us < start_us),
        sa.select(total(-account_hours.c.cost_nanos)).where(
            account_hours.c.account_id == account_id, hour_us >= opened_us, hour_us < start_us
        ),
        sa.select(total(-nanos)).where(is_own, IS_LATE, counted_us >= opened_us, counted_us < start_us),
    )
    return opening.account.balance_nanos + sum(connection.execute(query).scalar_one() for query in queries)


def read_bookings(
    connection: sa.Connection,
    account_id: str,
    start_us: int,
    end_us: int,
    most: int,
    after: tuple[int, int] = BEFORE_ALL,
) -> list[StatementEntry]:
    """Returns the grants and adjustments of a period that were booked after a time and id, the oldest first."""
    is_meant = sa.and_(_is_booked(account_id, start_us, end_us), sa.tuple_(*_ORDER) > sa.tuple_(*after))
    rows = connection.execute(sa.select(ledger).where(is_meant).order_by(*_ORDER).limit(most))
    return [StatementEntry(entry_id, Entry(*fields)) for entry_id, *fields in rows]


def sum_bookings(connection: sa.Connection, account_id: str, start_us: int, end_us: int, until: tuple[int, int]) -> int:
    """Returns the sum of the grants and adjustments of a period up to a time and id."""
    is_meant = sa.and_(_is_booked(account_id, start_us, end_us), sa.tuple_(*_ORDER) <= sa.tuple_(*until))
    nanos: int = connection.execute(sa.select(total(ledger.c.customer_nanos)).where(is_meant)).scalar_one()
    return nanos


def _is_booked(account_id: str, start_us: int, end_us: int) -> sa.ColumnElement[bool]:
    recorded_us = ledger.c.recorded_at_us
    return sa.and_(ledger.c.account_id == account_id, _IS_BOOKING, recorded_us >= start_us, recorded_us < end_us)
