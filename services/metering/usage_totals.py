"""Keeps the sums of an account's past hours by class, so that reports on a large account do not add up every key again.

An hour that is over gets no further charges, other than late ones, which are few: sums are kept without them, and every
report adds those that its snapshot has. So a report is exact whenever the sums were read.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from services.chassis.database.clock import read_now_us
from services.metering.key_totals import OVER_AFTER_US, BuildLocks, KeyTotals
from services.metering.ledger.records import DAY_US, HOUR_US
from services.metering.store import ledger_days
from services.metering.store.ledger_days import ClassHour, Offsets, bucket_starts
from services.metering.store.retention.closings import read_retention

# Older hours are read when they are asked for.
KEPT_FOR_US: Final = 400 * DAY_US
# Of all accounts together; each takes about 250 bytes.
KEPT_MOST: Final = 100_000
# Reports whose sums of past hours are kept.
REPORTS_MOST: Final = 200


class _Kept(NamedTuple):
    start_us: int
    end_us: int
    # The oldest first, without late charges.
    hours: list[ClassHour]


class _Report(NamedTuple):
    account_id: str
    # From which hour of what is kept; and until when, which changes every hour while the period goes on.
    first_us: int
    until_us: int
    bucket_us: int
    offsets: tuple[tuple[int, int], ...]


# By the start of the hour or day, as a local time, and by class.
BucketSums = dict[tuple[int, str], ClassHour]


class UsageTotals:
    """Is used by several threads."""

    def __init__(self, kept_most: int = KEPT_MOST) -> None:
        self._kept_most = kept_most
        # By account; the one that was used last is the last.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._building = BuildLocks()
        self.keys = KeyTotals(locks=self._building)
        # The oldest first.
        self._reports: OrderedDict[_Report, BucketSums] = OrderedDict()

    def read(self, connection: Any, account_id: str, start_us: int, end_us: int) -> Iterator[ClassHour]:
        """Returns the sums of the hours of a period by class, in no order; some are in parts."""
        kept, first_us, until_us, parts = self._parts(connection, account_id, start_us, end_us)
        yield from (hour for hour in kept if first_us <= hour.hour_us < until_us)
        yield from parts

    def read_buckets(
        self, connection: Any, account_id: str, start_us: int, end_us: int, bucket_us: int, offsets: Offsets
    ) -> BucketSums:
        """Returns the sums of a period by hour or day, or of the whole of it at 0, and by class. Those of past hours
        are added up once an hour."""
        kept, first_us, until_us, parts = self._parts(connection, account_id, start_us, end_us)
        start_of = bucket_starts(bucket_us, offsets) if bucket_us else lambda _: 0
        report = _Report(account_id, first_us, until_us, bucket_us, tuple(offsets))
        with self._lock:
            past = self._reports.get(report)
        if past is None:
            past = {}
            _add_hours(past, (hour for hour in kept if first_us <= hour.hour_us < until_us), start_of)
            with self._lock:
                self._reports[report] = past
                while len(self._reports) > REPORTS_MOST:
                    self._reports.popitem(last=False)
        sums = dict(past)
        _add_hours(sums, parts, start_of)
        return sums

    def _parts(
        self, connection: Any, account_id: str, start_us: int, end_us: int
    ) -> tuple[list[ClassHour], int, int, list[ClassHour]]:
        """Returns what is kept of an account, the first and the last of those hours in the period, and the parts that
        are to be added: late charges, and hours that are not kept."""
        now_us = read_now_us(connection)
        over_us = now_us - now_us % HOUR_US - OVER_AFTER_US
        # The hours of months before it are summed up, or their late charges are pruned.
        retention = read_retention(connection)
        retained_us = max(retention.ledger_pruned_before_us, retention.usage_marked_before_us)
        first_us = max(start_us, over_us - KEPT_FOR_US, retained_us)
        until_us = min(end_us, over_us)
        if first_us >= until_us:
            return [], 0, 0, ledger_days.read_class_hours(connection, account_id, start_us, end_us)
        kept = self._extended(connection, account_id, first_us, over_us)
        parts = ledger_days.read_late_hours(connection, account_id, first_us, until_us)
        if start_us < first_us:
            parts += ledger_days.read_class_hours(connection, account_id, start_us, first_us)
        if over_us < end_us:
            parts += ledger_days.read_class_hours(connection, account_id, over_us, end_us)
        return kept.hours, first_us, until_us, parts

    def _extended(self, connection: Any, account_id: str, start_us: int, end_us: int) -> _Kept:
        """Returns what is kept of an account, with what was missing of a period."""
        with self._lock:
            kept = self._kept.get(account_id)
        if kept is not None and kept.start_us <= start_us and end_us <= kept.end_us:
            self._keep(account_id, kept)
            return kept
        building = self._building.acquire(account_id)
        try:
            return self._built(connection, account_id, start_us, end_us)
        finally:
            building.release()

    def _built(self, connection: Any, account_id: str, start_us: int, end_us: int) -> _Kept:
        with self._lock:
            kept = self._kept.get(account_id)
        if kept is None:
            kept = _Kept(start_us, end_us, _without_late(connection, account_id, start_us, end_us))
        else:
            oldest_us = end_us - KEPT_FOR_US
            before = _without_late(connection, account_id, start_us, kept.start_us)
            after = _without_late(connection, account_id, kept.end_us, end_us)
            hours = [*before, *kept.hours, *after] if before or after else kept.hours
            if hours and hours[0].hour_us < oldest_us:
                hours = [hour for hour in hours if hour.hour_us >= oldest_us]
            kept = _Kept(max(oldest_us, min(start_us, kept.start_us)), max(end_us, kept.end_us), hours)
        self._keep(account_id, kept)
        return kept

    def _keep(self, account_id: str, kept: _Kept) -> None:
        with self._lock:
            self._kept[account_id] = kept
            self._kept.move_to_end(account_id)
            while sum(len(each.hours) + 1 for each in self._kept.values()) > self._kept_most and self._kept:
                self._kept.popitem(last=False)


def _without_late(connection: Any, account_id: str, start_us: int, end_us: int) -> list[ClassHour]:
    if start_us >= end_us:
        return []
    late: dict[tuple[int, str], ClassHour] = {}
    for hour in ledger_days.read_late_hours(connection, account_id, start_us, end_us):
        late[hour.hour_us, hour.class_id] = hour
    found = ledger_days.read_class_hours(connection, account_id, start_us, end_us)
    return [hour.minus(late.get((hour.hour_us, hour.class_id))) for hour in found]


def _add_hours(sums: BucketSums, hours: Iterable[ClassHour], start_of: Callable[[int], int]) -> None:
    for hour in hours:
        place = (start_of(hour.hour_us), hour.class_id)
        before = sums.get(place)
        sums[place] = hour if before is None else before.plus(hour)
