"""Implements rate limits by GCRA, the generic cell rate algorithm, as arithmetic on one number.

A bucket is the moment at which it is full again. Taking units moves that moment ahead by an interval each, and is
refused if it would lie further ahead than the burst allows. A refusal changes nothing. A `Rate` is given how far ahead
of now that moment is, so it depends on no clock.
"""

from collections.abc import Hashable
from typing import Final

import msgspec

from services.chassis.timing.deadlines import Clock

MINUTE_NS: Final = 60_000_000_000
# Above this, intervals of whole nanoseconds would be too coarse.
LARGEST_RATE: Final = 1_000_000_000
# Bounds the debt: a bucket is full again at most this much later than an empty one.
LONGEST_DEBT_NS: Final = 60 * MINUTE_NS

_FEWEST_KEPT: Final = 1024


class Rate(msgspec.Struct, frozen=True):
    per_minute: int
    # How many units may be taken at once.
    burst: int
    # Time per unit; computed from the rate.
    interval_ns: int = 0

    def __post_init__(self) -> None:
        # Rounded up, so that the limit is never exceeded.
        msgspec.structs.force_setattr(self, "interval_ns", -(-MINUTE_NS // self.per_minute))

    def wait_ns(self, ahead_ns: int, units: int) -> int:
        """Returns the delay until this many units can be taken; 0: now. A full bucket also allows more than the burst,
        which could never be taken otherwise. Taking nothing never waits."""
        if not units:
            return 0
        left_over = self.burst - units if units < self.burst else 0
        wait_ns = ahead_ns - left_over * self.interval_ns
        return max(0, wait_ns)

    def ahead_after_ns(self, ahead_ns: int, units: int) -> int:
        """Returns the state of the bucket after taking this many units, or, if negative, after returning them."""
        after_ns = ahead_ns + units * self.interval_ns
        if after_ns < 0:
            return 0
        most_ns = self.burst * self.interval_ns + LONGEST_DEBT_NS
        return min(most_ns, after_ns)

    def remaining(self, ahead_ns: int) -> int:
        return max(0, self.burst - -(-ahead_ns // self.interval_ns))

    def divided_by(self, parts: int) -> "Rate":
        """Returns a share of the rate, at least 1."""
        return Rate(max(1, self.per_minute // parts), max(1, self.burst // parts))


class Buckets:
    """Buckets by name. Full ones are evicted, so that it holds no more than those in use, and never more than
    `most`."""

    def __init__(self, clock: Clock, most: int = 1_000_000) -> None:
        self._clock = clock
        self._most = most
        self._whole_at_ns: dict[Hashable, int] = {}
        self._forget_at = min(_FEWEST_KEPT, most)

    def charge(self, name: Hashable, rate: Rate, units: int = 1) -> int:
        """Takes the units, or returns the nanoseconds to wait."""
        now_ns = self.now_ns()
        ahead_ns = self.ahead_ns(name, now_ns)
        wait_ns = rate.wait_ns(ahead_ns, units)
        if not wait_ns:
            self.set_ahead(name, rate.ahead_after_ns(ahead_ns, units), now_ns)
        return wait_ns

    def now_ns(self) -> int:
        return round(self._clock.elapsed_s() * 1_000_000_000)

    def ahead_ns(self, name: Hashable, now_ns: int) -> int:
        whole_at_ns = self._whole_at_ns.get(name, 0)
        return whole_at_ns - now_ns if whole_at_ns > now_ns else 0

    def set_ahead(self, name: Hashable, ahead_ns: int, now_ns: int) -> None:
        self._whole_at_ns[name] = now_ns + ahead_ns
        if len(self._whole_at_ns) > self._forget_at:
            self._forget(now_ns)

    def __len__(self) -> int:
        return len(self._whole_at_ns)

    def _forget(self, now_ns: int) -> None:
        kept = {name: at_ns for name, at_ns in self._whole_at_ns.items() if at_ns > now_ns}
        if len(kept) > self._most // 2:
            # Buckets that are nearly full lose the least.
            fullest_last = sorted(kept.items(), key=lambda bucket: bucket[1])
            kept = dict(fullest_last[-(self._most // 2) :])
        self._whole_at_ns = kept
        # Twice the buckets in use, so that eviction costs next to nothing per request.
        self._forget_at = min(max(_FEWEST_KEPT, 2 * len(kept)), self._most)
