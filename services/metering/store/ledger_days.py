"""Reads what changed an account's balance, by day: charges from the hourly counters, everything else entry by entry."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.metering.ledger.records import DAY_US, Entry
from services.metering.store.closings import read_opening
from services.metering.store.credits import IS_RARE
from services.metering.store.reports import bucket_start
from services.metering.store.tables import ledger, usage_hours

_BOOKINGS: Final = ("grant", "adjustment")

Offsets = Sequence[tuple[int, int]]


class DaySums(NamedTuple):
    """The sums of one day, which begins at a midnight of local time."""

    local_us: int
    requests: int = 0
    charged_nanos: int = 0
    credited_nanos: int = 0
    loss_nanos: int = 0

    def plus(self, *, requests: int = 0, charged: int = 0, credited: int = 0, loss: int = 0) -> "DaySums":
        return DaySums(
            self.local_us,
            self.requests + requests,
            self.charged_nanos + charged,
            self.credited_nanos + credited,
            self.loss_nanos + loss,
        )

    @property
    def is_empty(self) -> bool:
        return not any(self[1:])


def read_day_sums(
    connection: sa.Connection, account_id: str, start_us: int, end_us: int, offsets: Offsets
) -> list[DaySums]:
    """Returns the days of a period, which begins and ends on the hour; those that have an entry, the oldest first.

    Counters include a later charge of a request in the hour of its first one; such late charges are few, and are moved
    to the day on which they were booked."""
    days: dict[int, DaySums] = {}

    def add(local_us: int, **sums: int) -> None:
        days[local_us] = days.get(local_us, DaySums(local_us)).plus(**sums)

    hour_us = usage_hours.c.hour_us
    counted = (
        sa.select(
            bucket_start(hour_us, DAY_US, offsets),
            _total(usage_hours.c.requests),
            _total(usage_hours.c.cost_nanos),
            _total(usage_hours.c.loss_nanos),
        )
        .where(usage_hours.c.account_id == account_id, hour_us >= start_us, hour_us < end_us)
        .group_by(sa.text("1"))
    )
    for local_us, requests, cost_nanos, loss_nanos in connection.execute(counted):
        add(local_us, requests=requests, charged=cost_nanos, loss=loss_nanos)
    for local_us, kind, nanos, loss_nanos in _rare_sums(
        connection, account_id, start_us, end_us, offsets, ledger.c.recorded_at_us
    ):
        if kind in _BOOKINGS:
            # A return beyond what was free is a loss, too.
            add(local_us, credited=nanos, loss=-loss_nanos)
        else:
            add(local_us, charged=-nanos, loss=-loss_nanos)
    for local_us, kind, nanos, loss_nanos in _rare_sums(
        connection, account_id, start_us, end_us, offsets, ledger.c.hour_us
    ):
        if kind == "late_charge":
            add(local_us, charged=nanos, loss=loss_nanos)
    return [days[local_us] for local_us in sorted(days) if not days[local_us].is_empty]


def read_opening_balance(connection: sa.Connection, account_id: str, start_us: int) -> int:
    """Returns the balance of the last closing before an hour, and the sum of what was booked since."""
    opening = read_opening(connection, account_id, start_us)
    opened_us = opening.at_us
    is_own, nanos = sa.and_(ledger.c.account_id == account_id, IS_RARE), ledger.c.customer_nanos
    recorded_us, counted_us, hour_us = ledger.c.recorded_at_us, ledger.c.hour_us, usage_hours.c.hour_us
    queries = (
        sa.select(_total(nanos)).where(is_own, recorded_us >= opened_us, recorded_us < start_us),
        sa.select(_total(-usage_hours.c.cost_nanos)).where(
            usage_hours.c.account_id == account_id, hour_us >= opened_us, hour_us < start_us
        ),
        sa.select(_total(-nanos)).where(
            is_own, ledger.c.kind == "late_charge", counted_us >= opened_us, counted_us < start_us
        ),
    )
    return opening.account.balance_nanos + sum(connection.execute(query).scalar_one() for query in queries)


def read_bookings(connection: sa.Connection, account_id: str, start_us: int, end_us: int, most: int) -> list[Any]:
    """Returns grants and adjustments as pairs of id and entry, the oldest first."""
    query = (
        sa.select(ledger)
        .where(
            ledger.c.account_id == account_id,
            IS_RARE,
            ledger.c.kind.in_(_BOOKINGS),
            ledger.c.recorded_at_us >= start_us,
            ledger.c.recorded_at_us < end_us,
        )
        .order_by(ledger.c.recorded_at_us, ledger.c.entry_id)
        .limit(most)
    )
    return [(entry_id, Entry(*fields)) for entry_id, *fields in connection.execute(query)]


def _rare_sums(
    connection: sa.Connection,
    account_id: str,
    start_us: int,
    end_us: int,
    offsets: Offsets,
    time: sa.ColumnElement[int],
) -> list[Any]:
    """Returns rows of day, kind, what customers got and what was lost, for entries other than charges."""
    query = (
        sa.select(
            bucket_start(time, DAY_US, offsets),
            ledger.c.kind,
            _total(ledger.c.customer_nanos),
            _total(ledger.c.loss_nanos),
        )
        .where(ledger.c.account_id == account_id, IS_RARE, time >= start_us, time < end_us)
        .group_by(sa.text("1"), ledger.c.kind)
    )
    return list(connection.execute(query))


def _total(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    # PostgreSQL sums integers to decimals.
    return sa.cast(sa.func.coalesce(sa.func.sum(column), 0), sa.BigInteger)
