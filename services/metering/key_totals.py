"""Keeps the sums of an account's keys over the past hours of a period, so that pages of an account with very many keys
do not add up every counter again.

Like those by class, sums are kept without late charges, and every report adds those that its snapshot has: it is exact
whenever the sums were read. A period that goes on is extended by the hour, and a period that begins up to two days
earlier or later is made from it.
"""

import heapq
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from services.chassis.database.clock import read_now_us
from services.chassis.errors import LegatoError, Reason
from services.metering.ledger.records import DAY_US, HOUR_US
from services.metering.store.ledger_days import KeySums, read_key_counters, read_key_sums, read_late_key_sums
from services.metering.store.retention.closings import read_retention

# A transaction that charges in an hour has committed by the end of the next one.
OVER_AFTER_US: Final = HOUR_US
# Of all periods together; each takes about 400 bytes.
KEPT_MOST: Final = 100_000
# A period is made from another if their beginnings are this close.
CLOSE_US: Final = 2 * DAY_US
# Shorter than a page waits for an answer.
BUILDING_WAIT_S: Final = 0.4
_LOCKS: Final = 64

SumsByKey = Mapping[str, KeySums]
NOTHING: Final = KeySums(0, 0, 0, 0, 0)


class _Kept(NamedTuple):
    start_us: int
    end_us: int
    sums: SumsByKey
    # The keys, the most expensive first.
    ranked: list[str]
    total: KeySums


class _Past(NamedTuple):
    kept: _Kept
    # What is to be added: late charges, and hours that are summed up by month.
    others: list[SumsByKey]
    # The hours from it on are not over, and are to be added, too.
    until_us: int


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


class BuildLocks:
    """Has one thread at a time add up an account's counters: another one waits, and does not do the same work."""

    def __init__(self, wait_s: float = BUILDING_WAIT_S) -> None:
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._wait_s = wait_s

    def acquire(self, account_id: str) -> threading.Lock:
        """Returns the lock, which is held then. Raises instead of keeping a reader of the database for long."""
        lock = self._locks[hash(account_id) % _LOCKS]
        if not lock.acquire(timeout=self._wait_s):
            raise LegatoError(Reason.UNAVAILABLE, "The account's usage is being added up. Try again in some seconds.")
        return lock


class KeyTotals:
    """Is used by several threads."""

    def __init__(self, kept_most: int = KEPT_MOST, locks: BuildLocks | None = None) -> None:
        self._kept_most = kept_most
        # The one that was used last is the last.
        self._kept: OrderedDict[_Period, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._building = locks or BuildLocks()

    def read_keys(
        self, connection: Any, account_id: str, start_us: int, end_us: int, key_ids: Iterable[str] = ()
    ) -> dict[str, KeySums]:
        """Returns the sums of keys in a period, of those that have any; of all keys if none are given."""
        asked = frozenset(key_ids)
        past = self._read_past(connection, account_id, start_us, end_us, tuple(asked))
        kept = past.kept.sums
        found = {each: kept[each] for each in asked if each in kept} if asked else dict(kept)
        recent = read_key_sums(connection, account_id, past.until_us, end_us, tuple(asked))
        for part in (*past.others, recent):
            for key_id, sums in part.items():
                if not asked or key_id in asked:
                    found[key_id] = found.get(key_id, NOTHING).plus(sums)
        return found

    def read_top(self, connection: Any, account_id: str, start_us: int, end_us: int, most: int) -> TopKeys:
        """Returns the most expensive keys of a period, and the sum of all others."""
        past = self._read_past(connection, account_id, start_us, end_us, ())
        kept = past.kept
        # One by one: there are as many keys as counters, and to group them takes longer than to read them.
        added = read_key_counters(connection, account_id, past.until_us, end_us)
        added += [(key_id, *sums) for part in past.others for key_id, sums in part.items()]
        # Of these keys alone, since there are many.
        cost_nanos: dict[str, int] = {}
        for row in added:
            cost_nanos[row[0]] = cost_nanos.get(row[0], 0) + row[-1]
        new_keys = cost_nanos.keys() - kept.sums.keys()
        for key_id in cost_nanos.keys() & kept.sums.keys():
            cost_nanos[key_id] += kept.sums[key_id].cost_nanos
        unchanged = islice((key_id for key_id in kept.ranked if key_id not in cost_nanos), most)
        cost_nanos |= {key_id: kept.sums[key_id].cost_nanos for key_id in unchanged}
        ranked = heapq.nsmallest(most, cost_nanos.items(), key=lambda item: (-item[1], item[0]))
        top = {key_id: kept.sums.get(key_id, NOTHING) for key_id, _ in ranked}
        for key_id, *sums in added:
            if key_id in top:
                top[key_id] = top[key_id].plus(KeySums._make(sums))
        _, *columns = zip(*added, strict=True) if added else [()] * (1 + len(NOTHING))
        others = kept.total.plus(KeySums._make(map(sum, columns))).minus(_total(top.values()))
        return TopKeys(list(top.items()), len(kept.sums) + len(new_keys) - len(top), others)

    def _read_past(
        self, connection: Any, account_id: str, start_us: int, end_us: int, key_ids: tuple[str, ...]
    ) -> _Past:
        now_us = read_now_us(connection)
        over_us = now_us - now_us % HOUR_US - OVER_AFTER_US
        retention = read_retention(connection)
        retained_us = max(retention.ledger_pruned_before_us, retention.usage_marked_before_us)
        first_us, until_us = max(start_us, retained_us), min(end_us, over_us)
        if first_us >= until_us:
            return _Past(_NONE, [], start_us)
        period = _Period(account_id, first_us, end_us if end_us <= over_us else 0)
        kept = self._extended(connection, period, until_us, retained_us)
        others: list[SumsByKey] = [read_late_key_sums(connection, account_id, first_us, until_us)]
        if start_us < first_us:
            others.append(read_key_sums(connection, account_id, start_us, first_us, key_ids))
        return _Past(kept, others, until_us)

    def _extended(self, connection: Any, period: _Period, until_us: int, retained_us: int) -> _Kept:
        kept = self._find(period)
        if kept is not None and kept.end_us >= until_us:
            return kept
        building = self._building.acquire(period.account_id)
        try:
            kept = self._find(period) or self._shifted(connection, period, retained_us)
            if kept is None:
                kept = _ranked(period.start_us, until_us, _without_late(connection, period, period.start_us, until_us))
            elif kept.end_us < until_us:
                added = _without_late(connection, period, kept.end_us, until_us)
                kept = _ranked(kept.start_us, until_us, _plus(kept.sums, added))
            self._keep(period, kept)
        finally:
            building.release()
        return kept

    def _find(self, period: _Period) -> _Kept | None:
        with self._lock:
            kept = self._kept.get(period)
            if kept is not None:
                self._kept.move_to_end(period)
            return kept

    def _shifted(self, connection: Any, period: _Period, retained_us: int) -> _Kept | None:
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
        return _ranked(period.start_us, near.end_us, sums)

    def _keep(self, period: _Period, kept: _Kept) -> None:
        with self._lock:
            self._kept[period] = kept
            self._kept.move_to_end(period)
            while sum(len(each.sums) + 1 for each in self._kept.values()) > self._kept_most and self._kept:
                self._kept.popitem(last=False)


_NONE: Final = _Kept(0, 0, {}, [], NOTHING)


def _ranked(start_us: int, end_us: int, sums: SumsByKey) -> _Kept:
    ranked = sorted(sums, key=lambda key_id: (-sums[key_id].cost_nanos, key_id))
    return _Kept(start_us, end_us, sums, ranked, _total(sums.values()))


def _total(sums: Collection[tuple[int, ...]]) -> KeySums:
    return KeySums._make(map(sum, zip(*sums, strict=True))) if sums else NOTHING


def _without_late(connection: Any, period: _Period, start_us: int, end_us: int) -> SumsByKey:
    counted = read_key_sums(connection, period.account_id, start_us, end_us)
    return _minus(counted, read_late_key_sums(connection, period.account_id, start_us, end_us))


def _plus(sums: SumsByKey, added: SumsByKey) -> SumsByKey:
    result = dict(sums)
    for key_id, each in added.items():
        result[key_id] = result.get(key_id, NOTHING).plus(each)
    return result


def _minus(sums: SumsByKey, taken: SumsByKey) -> SumsByKey:
    """Returns the differences; a key that has nothing left is not among them."""
    result = dict(sums)
    for key_id, each in taken.items():
        result[key_id] = result.get(key_id, NOTHING).minus(each)
        if not any(result[key_id]):
            del result[key_id]
    return result
