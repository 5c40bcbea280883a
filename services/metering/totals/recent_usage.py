"""Keeps the counters of hours that are not over, so that reports on a large account do not read each of them again.

Counters change with every charge. They are kept as they were at one entry of the account's ledger, and every report
adds the charges that its own snapshot has since: it is exact whenever the counters were read.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final, NamedTuple

from services.metering.store.counters import Counter, EntryMark, read_counters, read_entries_since, read_last_entry
from services.metering.store.ledger_days import ClassHour
from services.metering.totals.kept_rows import KeptRows

# Of all accounts together; each takes about 400 bytes.
KEPT_MOST: Final = 100_000
# If more were added, the counters are read again.
ENTRIES_MOST: Final = 2_000
# If more were added, they become part of what is kept.
ADDED_MOST: Final = 50
_NO_END_US: Final = 2**62


class Recent:
    """The counters of an account from an hour on, as they were at an entry."""

    def __init__(self, start_us: int, mark: EntryMark | None, read: list[Counter]) -> None:
        self.start_us = start_us
        # None: the account has no entries.
        self.mark = mark
        self.read = read
        # Some are in parts: what was read, and what was added since.
        self.counters = read

    @cached_property
    def class_hours(self) -> dict[tuple[int, str], ClassHour]:
        sums: dict[tuple[int, str], list[int]] = {}
        for hour_us, _, class_id, requests, prompt, cached, completion, cost_nanos, loss_nanos in self.counters:
            found = sums.get((hour_us, class_id))
            if found is None:
                found = sums[hour_us, class_id] = [0] * 6
            found[0] += requests
            found[1] += prompt
            found[2] += cached
            found[3] += completion
            found[4] += cost_nanos
            found[5] += loss_nanos
        return {place: ClassHour(*place, *figures) for place, figures in sums.items()}

    @cached_property
    def by_key(self) -> dict[str, list[Counter]]:
        found: dict[str, list[Counter]] = {}
        for counter in self.counters:
            found.setdefault(counter.key_id, []).append(counter)
        return found

    def extended(self, mark: EntryMark, added: list[Counter]) -> "Recent":
        """Returns the counters as they were at a later entry."""
        later = Recent(self.start_us, mark, self.read)
        later.counters = self.counters + added
        later.class_hours, later.by_key = dict(self.class_hours), dict(self.by_key)
        for counter in added:
            hour = _class_hour(counter)
            before = later.class_hours.get(hour[:2])
            later.class_hours[hour[:2]] = hour if before is None else before.plus(hour)
            later.by_key[counter.key_id] = _with_part(later.by_key.get(counter.key_id, []), counter)
        return later


class RecentPart(NamedTuple):
    """The part of them that is in a period."""

    # None: no hour of the period is recent.
    recent: Recent | None
    start_us: int
    end_us: int
    # What the report's own snapshot has since.
    added: list[Counter]

    def continues(self, before: Recent | None) -> bool:
        """Returns whether what is kept is what was kept before, and more."""
        recent = self.recent
        return (
            recent is not None
            and before is not None
            and recent.read is before.read
            and len(recent.counters) >= len(before.counters)
        )

    def kept_after(self, before: Recent | None) -> list[Counter]:
        """Returns what is kept, without what was kept before."""
        if self.recent is None:
            return []
        return self._in_period(self.recent.counters[len(before.counters) if before is not None else 0 :])

    @property
    def class_hours(self) -> list[ClassHour]:
        """Returns the sums by hour and class; some are in parts."""
        if self.recent is None:
            return []
        hours = [hour for hour in self.recent.class_hours.values() if self.start_us <= hour.hour_us < self.end_us]
        return hours + list(map(_class_hour, self.added))

    def of_keys(self, key_ids: Iterable[str]) -> list[Counter]:
        """Returns the counters of keys; some are in parts."""
        asked = frozenset(key_ids)
        by_key = self.recent.by_key if self.recent is not None else {}
        found = self._in_period(counter for key_id in asked for counter in by_key.get(key_id, ()))
        return found + [counter for counter in self.added if counter.key_id in asked]

    def _in_period(self, counters: Iterable[Counter]) -> list[Counter]:
        return [counter for counter in counters if self.start_us <= counter.hour_us < self.end_us]


class RecentUsage:
    """Is used by several threads."""

    def __init__(self, kept_most: int = KEPT_MOST) -> None:
        # By account.
        self._kept: KeptRows[str, Recent] = KeptRows(kept_most)

    def read(self, connection: Any, account_id: str, over_us: int, start_us: int, end_us: int) -> RecentPart:
        """Returns the counters of a period, which has no hour before `over_us`: hours from it on are not over."""
        if start_us >= end_us:
            return RecentPart(None, start_us, end_us, [])
        recent, added = self._find(connection, account_id, over_us)
        part = RecentPart(recent, start_us, end_us, [])
        return part._replace(added=part._in_period(added))

    def _find(self, connection: Any, account_id: str, over_us: int) -> tuple[Recent, list[Counter]]:
        kept = self._kept.get(account_id)
        if kept is not None and kept.start_us == over_us and kept.mark is not None:
            since = read_entries_since(connection, account_id, kept.mark, ENTRIES_MOST)
            if since is not None and len(since.counters) <= ADDED_MOST:
                return kept, since.counters
            if since is not None and len(kept.counters) + len(since.counters) <= ENTRIES_MOST + 2 * len(kept.read):
                recent = kept.extended(since.last, since.counters)
                self._kept.put(account_id, recent, len(recent.counters))
                return recent, []
        counters = read_counters(connection, account_id, over_us, _NO_END_US)
        recent = Recent(over_us, read_last_entry(connection, account_id), counters)
        # A snapshot that began earlier does not replace what later ones use.
        if kept is None or kept.mark is None or (recent.mark is not None and recent.mark >= kept.mark):
            self._kept.put(account_id, recent, len(counters))
        return recent, []


def _with_part(counters: list[Counter], part: Counter) -> list[Counter]:
    """Returns a key's counters with a part of one. A busy key would have a part for every charge otherwise."""
    for place, counter in enumerate(counters):
        if counter[:3] == part[:3]:
            return [*counters[:place], part.plus(counter), *counters[place + 1 :]]
    return [*counters, part]


def _class_hour(counter: Counter) -> ClassHour:
    hour_us, _, class_id, *sums = counter
    return ClassHour(hour_us, class_id, *sums)
