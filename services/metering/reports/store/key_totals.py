"""Keeps the sums of an account's keys over the past hours of a period, so that pages of an account with very many keys
do not add up every counter again.

An hour that is over gets no further charges, other than late ones, which are few: sums are kept without them, and every
report adds those that its snapshot has. So a report is exact whenever the sums were read. A period that goes on is
extended by the hour, and a period that begins up to two days earlier or later is made from it.
"""

import heapq
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from services.chassis.database.clock import read_now_us
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store.closings import read_retention
from services.metering.reports.store.usage import KeySums, read_key_sums, read_late_key_sums
from services.metering.store import Connection

# Of all periods together; each takes about 400 bytes.
KEPT_MOST: Final = 100_000
# A period is made from another if their beginnings are this close.
CLOSE_US: Final = 2 * DAY_US
# A transaction that charges in an hour has committed by the end of the next one.
OVER_AFTER_US: Final = HOUR_US
# Shorter than a page waits for an answer.
BUILDING_WAIT_S: Final = 0.4
_LOCKS: Final = 64

SumsByKey = Mapping[str, KeySums]


class _Kept(NamedTuple):
    start_us: int
    end_us: int
    sums: SumsByKey


class _Period(NamedTuple):
    account_id: str
    start_us: int
    # 0: it goes on.
    end_us: int


class TopKeys(NamedTuple):
    # The most expensive first.
    keys: list[tuple[str, KeySums]]
    other_keys: int
    others: KeySums


class KeyTotals:
    """Is used by several threads."""

    def __init__(self, kept_most: int = KEPT_MOST, building_wait_s: float = BUILDING_WAIT_S) -> None:
        self._kept_most = kept_most
        self._building_wait_s = building_wait_s
        # The period that was used last is the last.
        self._kept: OrderedDict[_Period, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        # By account: one thread at a time adds up its counters, and others do not do the same work.
        self._building = [threading.Lock() for _ in range(_LOCKS)]

    def read_top(self, connection: Connection, account_id: str, start_us: int, end_us: int, most: int) -> TopKeys:
        """Returns the most expensive keys of a period, and the sum of all others."""
        sums = self.read(connection, account_id, start_us, end_us)
        top = heapq.nsmallest(most, sums.items(), key=lambda item: (-item[1].cost_nanos, item[0]))
        others = _total(sums.values()).minus(_total([each for _, each in top]))
        return TopKeys(top, len(sums) - len(top), others)

    def read(self, connection: Connection, account_id: str, start_us: int, end_us: int) -> SumsByKey:
        """Returns the sums of all keys that were used in a period."""
        retention, now_us = read_retention(connection), read_now_us(connection)
        # The hours before it are summed up by month, or their late charges are pruned.
        retained_us = max(retention.ledger_pruned_before_us, retention.usage_marked_before_us)
        over_us = now_us - now_us % HOUR_US - OVER_AFTER_US
        first_us, until_us = max(start_us, retained_us), min(end_us, over_us)
        if first_us >= until_us:
            return read_key_sums(connection, account_id, start_us, end_us)
        period = _Period(account_id, first_us, end_us if end_us <= over_us else 0)
        kept = self._extended(connection, period, until_us, retained_us)
        # Another report may have begun just after the end of an hour, and this one just before.
        until_us = max(until_us, kept.end_us)
        sums = _plus(kept.sums, read_late_key_sums(connection, account_id, first_us, until_us))
        for from_us, to_us in ((start_us, first_us), (until_us, end_us)):
            if from_us < to_us:
                sums = _plus(sums, read_key_sums(connection, account_id, from_us, to_us))
        return sums

    def _extended(self, connection: Connection, period: _Period, until_us: int, retained_us: int) -> _Kept:
        kept = self._find(period)
        if kept is not None and kept.end_us >= until_us:
            return kept
        building = self._building[hash(period.account_id) % _LOCKS]
        # Raises instead of keeping a reader of the database for long.
        if not building.acquire(timeout=self._building_wait_s):
            raise LegatoError(Reason.UNAVAILABLE, Sentence("usage_added_up"))
        try:
            kept = self._find(period) or self._shifted(connection, period, retained_us)
            kept = kept or _Kept(period.start_us, period.start_us, {})
            if kept.end_us < until_us:
                added = _without_late(connection, period, kept.end_us, until_us)
                kept = _Kept(kept.start_us, until_us, _plus(kept.sums, added))
            self._keep(period, kept)
        finally:
            building.release()
        return kept

    def _shifted(self, connection: Connection, period: _Period, retained_us: int) -> _Kept | None:
        """Returns the sums of a period that goes on, made from another that begins about the same time. Not from one
        that begins before `retained_us`: what it has of those hours can no longer be read."""
        if period.end_us:
            return None
        with self._lock:
            close = [
                kept
                for other, kept in self._kept.items()
                if other.account_id == period.account_id
                and not other.end_us
                and abs(other.start_us - period.start_us) <= CLOSE_US
                and other.start_us >= retained_us
                and kept.end_us > period.start_us
            ]
        if not close:
            return None
        near = min(close, key=lambda kept: abs(kept.start_us - period.start_us))
        if near.start_us < period.start_us:
            sums = _minus(near.sums, _without_late(connection, period, near.start_us, period.start_us))
        else:
            sums = _plus(near.sums, _without_late(connection, period, period.start_us, near.start_us))
        return _Kept(period.start_us, near.end_us, sums)

    def _find(self, period: _Period) -> _Kept | None:
        with self._lock:
            if period in self._kept:
                self._kept.move_to_end(period)
            return self._kept.get(period)

    def _keep(self, period: _Period, kept: _Kept) -> None:
        with self._lock:
            self._kept[period] = kept
            self._kept.move_to_end(period)
            while sum(len(each.sums) + 1 for each in self._kept.values()) > self._kept_most:
                self._kept.popitem(last=False)


def _total(sums: Collection[KeySums]) -> KeySums:
    return KeySums._make(map(sum, zip(*sums, strict=True))) if sums else KeySums()


def _without_late(connection: Connection, period: _Period, start_us: int, end_us: int) -> SumsByKey:
    counted = read_key_sums(connection, period.account_id, start_us, end_us)
    return _minus(counted, read_late_key_sums(connection, period.account_id, start_us, end_us))


def _plus(sums: SumsByKey, added: SumsByKey) -> SumsByKey:
    result = dict(sums)
    for key_id, each in added.items():
        found = result.get(key_id)
        result[key_id] = each if found is None else found.plus(each)
    return result


def _minus(sums: SumsByKey, taken: SumsByKey) -> SumsByKey:
    """Returns the differences; a key that has nothing left is not among them."""
    result = dict(sums)
    for key_id, each in taken.items():
        result[key_id] = result.get(key_id, KeySums()).minus(each)
        if not any(result[key_id]):
            del result[key_id]
    return result
