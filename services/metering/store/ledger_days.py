"""Reads what changed an account's balance, by day: charges from the hourly counters, everything else entry by entry."""

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.chassis.database.compiled_query import CompiledQuery
from services.metering.ledger.records import DAY_US, Entry
from services.metering.store.credits import IS_RARE
from services.metering.store.reports import bucket_start
from services.metering.store.retention.closings import read_opening
from services.metering.store.tables import ledger, usage_hours

_BOOKINGS: Final = ("grant", "adjustment")
_ACCOUNT_ID: Final = sa.bindparam("account_id", type_=sa.Text)
_START_US: Final = sa.bindparam("start_us", type_=sa.BigInteger)
_END_US: Final = sa.bindparam("end_us", type_=sa.BigInteger)
_IS_RARE_OF_ACCOUNT: Final = sa.and_(ledger.c.account_id == _ACCOUNT_ID, IS_RARE)

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


class ClassHour(NamedTuple):
    """The usage and cost of an hour's requests of one class."""

    hour_us: int
    class_id: str
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_nanos: int
    loss_nanos: int

    def plus(self, other: "ClassHour") -> "ClassHour":
        return ClassHour(self.hour_us, self.class_id, *map(operator.add, self[2:], other[2:]))

    def minus(self, other: "ClassHour | None") -> "ClassHour":
        if other is None:
            return self
        sums = (mine - its for mine, its in zip(self[2:], other[2:], strict=True))
        return ClassHour(self.hour_us, self.class_id, *sums)


class KeySums(NamedTuple):
    """The usage and cost of one key in a period."""

    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost_nanos: int

    def plus(self, other: "KeySums") -> "KeySums":
        # Written out, since there are many of them.
        return KeySums(
            self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3], self[4] + other[4]
        )

    def minus(self, other: "KeySums") -> "KeySums":
        return KeySums._make(map(operator.sub, self, other))


def _class_hours() -> sa.Select[Any]:
    counter = usage_hours.c
    return (
        sa.select(counter.hour_us, counter.class_id, *(_total(counter[name]) for name in ClassHour._fields[2:]))
        .where(counter.account_id == _ACCOUNT_ID, counter.hour_us >= _START_US, counter.hour_us < _END_US)
        .group_by(counter.hour_us, counter.class_id)
        .order_by(counter.hour_us)
    )


def _late_hours() -> sa.Select[Any]:
    entry = ledger.c
    counts = (entry.requests, entry.prompt_tokens, entry.cached_tokens, entry.completion_tokens)
    is_late = sa.and_(entry.account_id == _ACCOUNT_ID, IS_RARE, entry.kind == "late_charge")
    return (
        sa.select(entry.hour_us, entry.class_id, *map(_total, (*counts, -entry.customer_nanos, -entry.loss_nanos)))
        .where(is_late, entry.hour_us >= _START_US, entry.hour_us < _END_US)
        .group_by(entry.hour_us, entry.class_id)
    )


def _key_sums() -> sa.Select[Any]:
    counter = usage_hours.c
    return (
        sa.select(counter.key_id, *(_total(counter[name]) for name in KeySums._fields))
        .where(counter.account_id == _ACCOUNT_ID, counter.hour_us >= _START_US, counter.hour_us < _END_US)
        .group_by(counter.key_id)
    )


def _late_key_sums() -> sa.Select[Any]:
    entry = ledger.c
    counts = (entry.requests, entry.prompt_tokens, entry.cached_tokens, entry.completion_tokens)
    return (
        sa.select(entry.key_id, *map(_total, (*counts, -entry.customer_nanos)))
        .where(_IS_RARE_OF_ACCOUNT, entry.kind == "late_charge", entry.hour_us >= _START_US, entry.hour_us < _END_US)
        .group_by(entry.key_id)
    )


def read_class_hours(connection: sa.Connection, account_id: str, start_us: int, end_us: int) -> list[ClassHour]:
    """Returns the counters of all keys together, the oldest first."""
    period = {"account_id": account_id, "start_us": start_us, "end_us": end_us}
    return [ClassHour(*row) for row in _CLASS_HOURS.all(connection, **period)]


def read_late_hours(connection: sa.Connection, account_id: str, start_us: int, end_us: int) -> list[ClassHour]:
    """Returns the part of the counters that later charges of requests are."""
    period = {"account_id": account_id, "start_us": start_us, "end_us": end_us}
    return [ClassHour(*row) for row in _LATE_HOURS.all(connection, **period)]


def read_key_sums(
    connection: sa.Connection, account_id: str, start_us: int, end_us: int, key_ids: Sequence[str] = ()
) -> dict[str, KeySums]:
    """Returns the counters of a period by key; of all keys if none are given."""
    period = {"account_id": account_id, "start_us": start_us, "end_us": end_us}
    rows: Iterable[Any]
    if key_ids:
        rows = connection.execute(_SUMS_OF_KEYS, {**period, "key_ids": list(key_ids)})
    else:
        rows = _KEY_SUMS.all(connection, **period)
    return {key_id: KeySums._make(sums) for key_id, *sums in rows}


def read_late_key_sums(connection: sa.Connection, account_id: str, start_us: int, end_us: int) -> dict[str, KeySums]:
    """Returns the part of those counters that later charges of requests are."""
    rows = _LATE_KEY_SUMS.all(connection, account_id=account_id, start_us=start_us, end_us=end_us)
    return {key_id: KeySums._make(sums) for key_id, *sums in rows}


def read_day_sums(
    connection: sa.Connection,
    account_id: str,
    start_us: int,
    end_us: int,
    offsets: Offsets,
    hours: Iterable[ClassHour],
) -> list[DaySums]:
    """Returns the days of a period, which begins and ends on the hour; those that have an entry, the oldest first.
    `hours` are its counters.

    Counters include a later charge of a request in the hour of its first one; such late charges are few, and are moved
    to the day on which they were booked."""
    days: dict[int, DaySums] = {}

    def add(local_us: int, **sums: int) -> None:
        days[local_us] = days.get(local_us, DaySums(local_us)).plus(**sums)

    counted: dict[int, list[int]] = {}
    start_of = bucket_starts(DAY_US, offsets)
    for hour_us, _, requests, _, _, _, cost_nanos, loss_nanos in hours:
        sums = counted.setdefault(start_of(hour_us), [0, 0, 0])
        sums[0] += requests
        sums[1] += cost_nanos
        sums[2] += loss_nanos
    for local_us, (requests, cost_nanos, loss_nanos) in counted.items():
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


def bucket_starts(bucket_us: int, offsets: Offsets) -> Callable[[int], int]:
    """Returns a function for the start of the hour or day of a time, as a local time: what `bucket_start` is in SQL."""
    if len(offsets) == 1:
        [(_, offset_us)] = offsets
        return lambda at_us: at_us + offset_us - (at_us + offset_us) % bucket_us
    changes_us = [from_us for from_us, _ in offsets[1:]]

    def start_of(at_us: int) -> int:
        local_us = at_us + offsets[bisect_right(changes_us, at_us)][1]
        return local_us - local_us % bucket_us

    return start_of


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


def read_rare_since(connection: sa.Connection, account_id: str, start_us: int) -> int:
    """Returns what an account's entries other than charges sum up to from an hour on; less late charges that count in
    those hours, which counters have."""
    [(rare_nanos,)] = _RARE_SINCE.all(connection, account_id=account_id, start_us=start_us)
    [(late_nanos,)] = _LATE_SINCE.all(connection, account_id=account_id, start_us=start_us)
    return int(rare_nanos + late_nanos)


def read_bookings(connection: sa.Connection, account_id: str, start_us: int, end_us: int, most: int) -> list[Any]:
    """Returns grants and adjustments as pairs of id and entry, the oldest first."""
    rows = _BOOKED.all(connection, account_id=account_id, start_us=start_us, end_us=end_us, most=most)
    return [(entry_id, Entry(*fields)) for entry_id, *fields in rows]


def _rare_sums(
    connection: sa.Connection,
    account_id: str,
    start_us: int,
    end_us: int,
    offsets: Offsets,
    time: sa.ColumnElement[int],
) -> list[Any]:
    """Returns rows of day, kind, what customers got and what was lost, for entries other than charges."""
    return _rare_query(tuple(offsets), time).all(connection, account_id=account_id, start_us=start_us, end_us=end_us)


@lru_cache(maxsize=64)
def _rare_query(offsets: tuple[tuple[int, int], ...], time: sa.ColumnElement[int]) -> CompiledQuery:
    return CompiledQuery(
        sa.select(
            bucket_start(time, DAY_US, offsets),
            ledger.c.kind,
            _total(ledger.c.customer_nanos),
            _total(ledger.c.loss_nanos),
        )
        .where(_IS_RARE_OF_ACCOUNT, time >= _START_US, time < _END_US)
        .group_by(sa.text("1"), ledger.c.kind)
    )


def _total(column: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
    # PostgreSQL sums integers to decimals.
    return sa.cast(sa.func.coalesce(sa.func.sum(column), 0), sa.BigInteger)


# Built once: to build them takes longer than to run them.
_CLASS_HOURS: Final = CompiledQuery(_class_hours())
_LATE_HOURS: Final = CompiledQuery(_late_hours())
_KEY_SUMS: Final = CompiledQuery(_key_sums())
_SUMS_OF_KEYS: Final = _key_sums().where(usage_hours.c.key_id.in_(sa.bindparam("key_ids", expanding=True)))
_LATE_KEY_SUMS: Final = CompiledQuery(_late_key_sums())
_RARE_SINCE: Final = CompiledQuery(
    sa.select(_total(ledger.c.customer_nanos)).where(_IS_RARE_OF_ACCOUNT, ledger.c.recorded_at_us >= _START_US)
)
_LATE_SINCE: Final = CompiledQuery(
    sa.select(_total(-ledger.c.customer_nanos)).where(
        _IS_RARE_OF_ACCOUNT, ledger.c.kind == "late_charge", ledger.c.hour_us >= _START_US
    )
)
_BOOKED: Final = CompiledQuery(
    sa.select(ledger)
    .where(
        _IS_RARE_OF_ACCOUNT,
        sa.or_(*(ledger.c.kind == kind for kind in _BOOKINGS)),
        ledger.c.recorded_at_us >= _START_US,
        ledger.c.recorded_at_us < _END_US,
    )
    .order_by(ledger.c.recorded_at_us, ledger.c.entry_id)
    .limit(sa.bindparam("most", type_=sa.BigInteger))
)
