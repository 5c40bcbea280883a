"""Keeps the sums of an account's keys over the past hours of a period, so that pages of an account with very many keys
do not add up every counter again.

Like those by class, sums are kept without late charges, and every report adds those that its snapshot has: it is exact
whenever the sums were read. A period that goes on is extended by the hour, and a period that begins up to two days
earlier or later is made from it. The order of the keys is kept, too, with what is kept of the hours that are not over.
"""

import heapq
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from services.metering.ledger.records import DAY_US, HOUR_US
from services.metering.store.counters import Counter, read_counters
from services.metering.store.ledger_days import KeySums, read_key_sums, read_late_key_sums
from services.metering.totals.kept_rows import KeptRows
from services.metering.totals.past_hours import BuildLocks, find_past_hours
from services.metering.totals.recent_usage import Recent, RecentPart, RecentUsage

# Of all periods together; each takes about 400 bytes.
KEPT_MOST: Final = 100_000
# A period is made from another if their beginnings are this close.
CLOSE_US: Final = 2 * DAY_US
# In few hours most keys have one counter, and the database takes longer to group them than to list them.
FEW_HOURS_US: Final = 3 * HOUR_US

SumsByKey = Mapping[str, KeySums]
NOTHING: Final = KeySums(0, 0, 0, 0, 0)


class _Kept(NamedTuple):
    start_us: int
    end_us: int
    sums: SumsByKey


class _Past(NamedTuple):
    kept: _Kept
    # What is to be added: late charges, and hours that are summed up by month.
    others: list[SumsByKey]
    recent: RecentPart


class _Ranked(NamedTuple):
    """The sums of past hours, and what is kept of recent ones."""

    kept: _Kept
    recent: Recent | None
    sums: SumsByKey
    # The keys, the most expensive first.
    order: list[str]
    total: KeySums


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

    def __init__(
        self, kept_most: int = KEPT_MOST, locks: BuildLocks | None = None, recent: RecentUsage | None = None
    ) -> None:
        self._kept: KeptRows[_Period, _Kept] = KeptRows(kept_most)
        self._ranked: KeptRows[_Period, _Ranked] = KeptRows(kept_most)
        self._building = locks or BuildLocks()
        self._recent = recent or RecentUsage()

    def read_keys(
        self, connection: Any, account_id: str, start_us: int, end_us: int, key_ids: Iterable[str] = ()
    ) -> dict[str, KeySums]:
        """Returns the sums of keys in a period, of those that have any; of all keys if none are given."""
        asked = frozenset(key_ids)
        past = self._read_past(connection, account_id, start_us, end_us, tuple(asked))
        kept = past.kept.sums
        found = {each: kept[each] for each in asked if each in kept} if asked else dict(kept)
        for part in past.others:
            for key_id, sums in part.items():
                if not asked or key_id in asked:
                    found[key_id] = found.get(key_id, NOTHING).plus(sums)
        _add_counters(found, past.recent.of_keys(asked) if asked else past.recent.kept_after(None) + past.recent.added)
        return found

    def read_top(self, connection: Any, account_id: str, start_us: int, end_us: int, most: int) -> TopKeys:
        """Returns the most expensive keys of a period, and the sum of all others."""
        past = self._read_past(connection, account_id, start_us, end_us, ())
        ranked = self._rank(_Period(account_id, start_us, end_us), past.kept, past.recent)
        # Of few keys, while the others are as they were ranked.
        added: dict[str, KeySums] = {}
        for part in past.others:
            for key_id, sums in part.items():
                added[key_id] = added.get(key_id, NOTHING).plus(sums)
        _add_counters(added, past.recent.added)
        changed = {key_id: ranked.sums.get(key_id, NOTHING).plus(sums) for key_id, sums in added.items()}
        unchanged = islice((key_id for key_id in ranked.order if key_id not in changed), most)
        found = changed | {key_id: ranked.sums[key_id] for key_id in unchanged}
        top = heapq.nsmallest(most, found.items(), key=lambda item: (-item[1].cost_nanos, item[0]))
        others = ranked.total.plus(_total(added.values())).minus(_total([sums for _, sums in top]))
        new_keys = sum(key_id not in ranked.sums for key_id in added)
        return TopKeys(top, len(ranked.sums) + new_keys - len(top), others)

    def _rank(self, period: _Period, kept: _Kept, part: RecentPart) -> _Ranked:
        before = self._ranked.get(period)
        if before is not None and before.kept is kept and before.recent is part.recent:
            return before
        if before is not None and before.kept is kept and part.continues(before.recent):
            ranked = _with_added(before, part)
        else:
            sums = dict(kept.sums)
            _add_counters(sums, part.kept_after(None))
            # Most keys are where they were: what is nearly sorted is sorted soon.
            order = [key_id for key_id in before.order if key_id in sums] if before is not None else []
            order += sums.keys() - set(order)
            order.sort(key=_by_cost(sums))
            ranked = _Ranked(kept, part.recent, sums, order, _total(sums.values()))
        self._ranked.put(period, ranked, len(ranked.sums))
        return ranked

    def _read_past(
        self, connection: Any, account_id: str, start_us: int, end_us: int, key_ids: tuple[str, ...]
    ) -> _Past:
        retained_us, over_us = find_past_hours(connection)
        first_us, until_us = max(start_us, retained_us), min(end_us, over_us)
        if first_us >= until_us and start_us < over_us:
            all_sums = read_key_sums(connection, account_id, start_us, end_us, key_ids)
            return _Past(_NONE, [all_sums], self._recent.read(connection, account_id, over_us, end_us, end_us))
        if first_us >= until_us:
            return _Past(_NONE, [], self._recent.read(connection, account_id, over_us, start_us, end_us))
        period = _Period(account_id, first_us, end_us if end_us <= over_us else 0)
        kept = self._extended(connection, period, until_us, retained_us)
        # Another report may have begun just after the end of an hour, and this one just before.
        until_us = max(until_us, kept.end_us)
        others: list[SumsByKey] = [read_late_key_sums(connection, account_id, first_us, until_us)]
        if start_us < first_us:
            others.append(read_key_sums(connection, account_id, start_us, first_us, key_ids))
        return _Past(kept, others, self._recent.read(connection, account_id, over_us, until_us, end_us))

    def _extended(self, connection: Any, period: _Period, until_us: int, retained_us: int) -> _Kept:
        kept = self._kept.get(period)
        if kept is not None and kept.end_us >= until_us:
            return kept
        building = self._building.acquire(period.account_id)
        try:
            kept = self._kept.get(period) or self._shifted(connection, period, retained_us)
            if kept is None:
                sums: SumsByKey = _without_late(connection, period, period.start_us, until_us)
                kept = _Kept(period.start_us, until_us, sums)
            elif kept.end_us < until_us:
                added = _without_late(connection, period, kept.end_us, until_us)
                kept = _Kept(kept.start_us, until_us, _plus(kept.sums, added))
            self._kept.put(period, kept, len(kept.sums))
        finally:
            building.release()
        return kept

    def _shifted(self, connection: Any, period: _Period, retained_us: int) -> _Kept | None:
        """Returns the sums of a period that goes on, made from another that begins about the same time. Not from one
        that begins before `retained_us`: what it has of those hours can no longer be read."""
        if period.end_us:
            return None
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


_NONE: Final = _Kept(0, 0, {})


def _total(sums: Collection[tuple[int, ...]]) -> KeySums:
    return KeySums._make(map(sum, zip(*sums, strict=True))) if sums else NOTHING


def _by_cost(sums: SumsByKey) -> Callable[[str], tuple[int, str]]:
    return lambda key_id: (-sums[key_id].cost_nanos, key_id)


def _with_added(ranked: _Ranked, part: RecentPart) -> _Ranked:
    """Ranks the keys with what was added to recent counters, which is little."""
    added: dict[str, KeySums] = {}
    _add_counters(added, part.kept_after(ranked.recent))
    sums = _plus(ranked.sums, added)
    order = [key_id for key_id in ranked.order if key_id not in added]
    for key_id in added:
        insort(order, key_id, key=_by_cost(sums))
    return _Ranked(ranked.kept, part.recent, sums, order, ranked.total.plus(_total(added.values())))


def _add_counters(sums: dict[str, KeySums], counters: Iterable[Counter]) -> None:
    for _, key_id, _, requests, prompt, cached, completion, cost_nanos, _ in counters:
        found = sums.get(key_id, NOTHING)
        sums[key_id] = KeySums(
            found.requests + requests,
            found.prompt_tokens + prompt,
            found.cached_tokens + cached,
            found.completion_tokens + completion,
            found.cost_nanos + cost_nanos,
        )


def _without_late(connection: Any, period: _Period, start_us: int, end_us: int) -> SumsByKey:
    if end_us - start_us <= FEW_HOURS_US:
        counted: dict[str, KeySums] = {}
        _add_counters(counted, read_counters(connection, period.account_id, start_us, end_us))
    else:
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
        result[key_id] = result.get(key_id, NOTHING).minus(each)
        if not any(result[key_id]):
            del result[key_id]
    return result
