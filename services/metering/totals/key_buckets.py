"""Keeps the sums of single keys by hour or day over the past hours of a period, for charts: to look up the counters of
few keys among many would take longer than all else of a page.

Like other sums of past hours, they are kept without late charges, and every report adds those that its snapshot has.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from services.metering.store.counters import Counter, read_late_counters
from services.metering.store.ledger_days import KeySums, bucket_starts
from services.metering.store.reports import read_usage
from services.metering.totals.kept_rows import KeptRows
from services.metering.totals.past_hours import find_past_hours
from services.metering.totals.recent_usage import RecentUsage
from services.rules.model_classes import CLASSES

# Of all keys together; each takes about 400 bytes.
KEPT_MOST: Final = 100_000
# A larger report would leave no room for those of others.
REPORT_MOST: Final = 20_000
_NOTHING: Final = KeySums(0, 0, 0, 0, 0)

# By the start of the hour or day, as a local time, and by class.
BucketSums = dict[tuple[int, str], KeySums]


class Grouping(NamedTuple):
    # 0: the whole period.
    bucket_us: int
    offsets: tuple[tuple[int, int], ...]
    # Otherwise the class is empty.
    by_class: bool

    def rows_most(self, start_us: int, end_us: int, keys: int) -> int:
        buckets = (end_us - start_us) // self.bucket_us + 1 if self.bucket_us else 1
        return keys * buckets * (len(CLASSES) if self.by_class else 1)


class _Period(NamedTuple):
    account_id: str
    start_us: int
    # 0: it goes on.
    end_us: int
    grouping: Grouping


class _Kept(NamedTuple):
    end_us: int
    sums: BucketSums


class KeyBuckets:
    """Is used by several threads."""

    def __init__(self, kept_most: int = KEPT_MOST, recent: RecentUsage | None = None) -> None:
        self._kept: KeptRows[tuple[_Period, str], _Kept] = KeptRows(kept_most)
        self._recent = recent or RecentUsage()

    def read(
        self,
        connection: Any,
        account_id: str,
        start_us: int,
        end_us: int,
        grouping: Grouping,
        key_ids: Sequence[str],
    ) -> dict[str, BucketSums]:
        """Returns the sums of keys, of those buckets that have any."""
        retained_us, over_us = find_past_hours(connection)
        first_us, until_us = max(start_us, retained_us), min(end_us, over_us)
        sums: dict[str, BucketSums] = {key_id: {} for key_id in key_ids}
        if first_us < until_us:
            period = _Period(account_id, first_us, end_us if end_us <= over_us else 0, grouping)
            kept = {key_id: self._kept.get((period, key_id)) for key_id in sums}
            # Another report may have begun just after the end of an hour, and this one just before.
            until_us = max([until_us, *(each.end_us for each in kept.values() if each is not None)])
            late = read_late_counters(connection, account_id, first_us, until_us)
            for key_id, each in self._extended(connection, period, until_us, kept, late).items():
                sums[key_id] = dict(each.sums)
            _add(sums, grouping, late)
        if start_us < min(first_us, until_us):
            _add_usage(connection, sums, account_id, start_us, min(first_us, until_us), grouping)
        recent_us = max(start_us, until_us, over_us)
        if recent_us < end_us:
            _add(sums, grouping, self._recent.read(connection, account_id, over_us, recent_us, end_us).of_keys(sums))
        return {
            key_id: {place: figures for place, figures in of_key.items() if any(figures)}
            for key_id, of_key in sums.items()
        }

    def _extended(
        self, connection: Any, period: _Period, until_us: int, kept: dict[str, _Kept | None], late: list[Counter]
    ) -> dict[str, _Kept]:
        """Returns what is kept of keys, until an hour."""
        found = {key_id: each or _Kept(period.start_us, {}) for key_id, each in kept.items()}
        by_end: defaultdict[int, list[str]] = defaultdict(list)
        for key_id, each in found.items():
            by_end[each.end_us].append(key_id)
        for from_us, key_ids in by_end.items():
            if from_us >= until_us:
                continue
            sums = {key_id: dict(found[key_id].sums) for key_id in key_ids}
            _add_usage(connection, sums, period.account_id, from_us, until_us, period.grouping)
            _add(sums, period.grouping, (each for each in late if from_us <= each.hour_us), sign=-1)
            for key_id in key_ids:
                found[key_id] = _Kept(until_us, sums[key_id])
                self._kept.put((period, key_id), found[key_id], len(sums[key_id]))
        return found


def _add_usage(
    connection: Any, sums: dict[str, BucketSums], account_id: str, start_us: int, end_us: int, grouping: Grouping
) -> None:
    bucket_us, offsets, by_class = grouping
    rows = read_usage(
        connection,
        account_id,
        start_us,
        end_us,
        bucket_us=bucket_us,
        offsets=offsets,
        by_key=True,
        by_class=by_class,
        rows_most=grouping.rows_most(start_us, end_us, len(sums)) + len(sums),
        key_ids=list(sums),
    )
    for local_us, key_id, class_id, *figures in rows:
        of_key, place = sums[key_id], (local_us, class_id)
        of_key[place] = of_key.get(place, _NOTHING).plus(KeySums._make(figures))


def _add(sums: dict[str, BucketSums], grouping: Grouping, counters: Iterable[Counter], sign: int = 1) -> None:
    """Adds the counters of those keys that there are sums of."""
    start_of = bucket_starts(grouping.bucket_us, grouping.offsets) if grouping.bucket_us else lambda _: 0
    for hour_us, key_id, class_id, *figures, _ in counters:
        of_key = sums.get(key_id)
        if of_key is not None:
            place = (start_of(hour_us), class_id if grouping.by_class else "")
            added = KeySums._make(sign * figure for figure in figures)
            of_key[place] = of_key.get(place, _NOTHING).plus(added)
