"""Keeps the sums of an account's past hours by class, so that reports on a large account do not add up every key again.

An hour that is over gets no further charges, other than late ones, which are few: sums are kept without them, and every
report adds those that its snapshot has. So a report is exact whenever the sums were read.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from services.chassis.database.database import read_now_us
from services.metering.key_totals import OVER_AFTER_US, BuildLocks, KeyTotals
from services.metering.ledger.records import DAY_US, HOUR_US
from services.metering.store import ledger_days
from services.metering.store.closings import read_retention
from services.metering.store.ledger_days import ClassHour

# Older hours are read when they are asked for.
KEPT_FOR_US: Final = 100 * DAY_US
# Of all accounts together; each takes about 250 bytes.
KEPT_MOST: Final = 50_000


class _Kept(NamedTuple):
    start_us: int
    end_us: int
    # The oldest first, without late charges.
    hours: list[ClassHour]


class UsageTotals:
    """Is used by several threads."""

    def __init__(self, kept_most: int = KEPT_MOST) -> None:
        self._kept_most = kept_most
        # By account; the one that was used last is the last.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._building = BuildLocks()
        self.keys = KeyTotals(locks=self._building)

    def read(self, connection: Any, account_id: str, start_us: int, end_us: int) -> Iterator[ClassHour]:
        """Returns the sums of the hours of a period by class, in no order; some are in parts."""
        now_us = read_now_us(connection)
        over_us = now_us - now_us % HOUR_US - OVER_AFTER_US
        # The hours of months before it are summed up, or their late charges are pruned.
        retention = read_retention(connection)
        retained_us = max(retention.ledger_pruned_before_us, retention.usage_marked_before_us)
        first_us = max(start_us, over_us - KEPT_FOR_US, retained_us)
        if first_us >= min(end_us, over_us):
            yield from ledger_days.read_class_hours(connection, account_id, start_us, end_us)
            return
        kept = self._extended(connection, account_id, first_us, over_us)
        until_us = min(end_us, over_us)
        yield from (hour for hour in kept.hours if first_us <= hour.hour_us < until_us)
        yield from ledger_days.read_late_hours(connection, account_id, first_us, until_us)
        if start_us < first_us:
            yield from ledger_days.read_class_hours(connection, account_id, start_us, first_us)
        if over_us < end_us:
            yield from ledger_days.read_class_hours(connection, account_id, over_us, end_us)

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
