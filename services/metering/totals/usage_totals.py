"""Keeps the sums of an account's past hours by class, so that reports on a large account do not add up every key again.

An hour that is over gets no further charges, other than late ones, which are few: sums are kept without them, and every
report adds those that its snapshot has. So a report is exact whenever the sums were read.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from services.metering.ledger.records import DAY_US
from services.metering.store import ledger_days
from services.metering.store.ledger_days import ClassHour, Offsets, bucket_starts
from services.metering.totals.kept_rows import KeptRows
from services.metering.totals.key_buckets import KeyBuckets
from services.metering.totals.key_totals import KeyTotals
from services.metering.totals.past_hours import BuildLocks, find_past_hours
from services.metering.totals.recent_usage import RecentUsage

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
    # From which hour of what is kept.
    first_us: int
    # 0: it goes on.
    end_us: int
    bucket_us: int
    offsets: tuple[tuple[int, int], ...]


# By the start of the hour or day, as a local time, and by class.
BucketSums = dict[tuple[int, str], ClassHour]


class UsageTotals:
    """Is used by several threads."""

    def __init__(self, kept_most: int = KEPT_MOST) -> None:
        # By account.
        self._kept: KeptRows[str, _Kept] = KeptRows(kept_most)
        self._building = BuildLocks()
        self._recent = RecentUsage(kept_most)
        self.keys = KeyTotals(kept_most, self._building, self._recent)
        self.key_buckets = KeyBuckets(kept_most, self._recent)
        self._lock = threading.Lock()
        # With the hour until which they are; the oldest first.
        self._reports: OrderedDict[_Report, tuple[int, BucketSums]] = OrderedDict()

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
        report = _Report(account_id, first_us, end_us if end_us <= until_us else 0, bucket_us, tuple(offsets))
        with self._lock:
            past_us, past = self._reports.get(report, (first_us, {}))
        if past_us != until_us:
            # Another report may have begun just after the end of an hour, and this one just before.
            past_us, past = (past_us, dict(past)) if past_us < until_us else (first_us, {})
            _add_hours(past, (hour for hour in kept if past_us <= hour.hour_us < until_us), start_of)
            with self._lock:
                self._reports[report] = (until_us, past)
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
        retained_us, over_us = find_past_hours(connection)
        first_us = max(start_us, over_us - KEPT_FOR_US, retained_us)
        until_us = min(end_us, over_us)
        recent = self._recent.read(connection, account_id, over_us, min(max(start_us, over_us), end_us), end_us)
        parts = recent.class_hours
        if first_us >= until_us:
            if start_us < until_us:
                parts += ledger_days.read_class_hours(connection, account_id, start_us, until_us)
            return [], 0, 0, parts
        kept = self._extended(connection, account_id, first_us, over_us)
        parts += ledger_days.read_late_hours(connection, account_id, first_us, until_us)
        if start_us < first_us:
            parts += ledger_days.read_class_hours(connection, account_id, start_us, first_us)
        return kept.hours, first_us, until_us, parts

    def _extended(self, connection: Any, account_id: str, start_us: int, end_us: int) -> _Kept:
        """Returns what is kept of an account, with what was missing of a period."""
        kept = self._kept.get(account_id)
        if kept is not None and kept.start_us <= start_us and end_us <= kept.end_us:
            return kept
        building = self._building.acquire(account_id)
        try:
            return self._built(connection, account_id, start_us, end_us)
        finally:
            building.release()

    def _built(self, connection: Any, account_id: str, start_us: int, end_us: int) -> _Kept:
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
        self._kept.put(account_id, kept, len(kept.hours))
        return kept


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
