"""Detects queueing from latency samples and reports it to the gate."""

import math
from collections.abc import Sequence
from typing import Final, Protocol

from services.chassis.timing.deadlines import Clock

# A verdict needs this many samples over this much time. Samples of a stale round are discarded.
LEAST_SAMPLES: Final = 8
ROUND_S: Final = 0.25
STALE_S: Final = 60.0
# After a signal reported queueing, limits do not grow for this long.
NO_GROWTH_S: Final = 1.0
# The sample that counts is the lower quartile of a round.
LOWEST_QUARTER: Final = 0.25


class QueueingListener(Protocol):
    """The gate's interface to a signal."""

    def add(self, signal: "QueueingSignal") -> None: ...

    def counts_from(self, began_s: float) -> bool:
        """Returns whether work that began then was admitted under the current limit."""
        ...

    def judge(self, pressure: float, tolerated_s: float | None, only_key_id: str | None = None) -> None: ...


class QueueingSignal:
    """One measure of queueing. A low sample of each round counts: in a queue every request waits, so a few slow ones
    are not taken for a queue."""

    def __init__(
        self,
        gate: QueueingListener,
        clock: Clock,
        tolerated_s: float | None = None,
        *,
        share: float = LOWEST_QUARTER,
        least_samples: int = LEAST_SAMPLES,
        round_s: float = ROUND_S,
    ) -> None:
        """Measures for `gate`; `tolerated_s` is the tolerated wait, given where the admitted requests themselves queue.
        `share` is the share of a round's samples that may be low although there is a queue."""
        self._gate = gate
        self._clock = clock
        self._tolerated_s = tolerated_s
        self._share = share
        self._least_samples = least_samples
        self._round_s = round_s
        self._samples: list[float] = []
        self._key_ids: set[str] = set()
        self._round_began_at_s = 0.0
        self._objected_at_s = -math.inf
        gate.add(self)

    def note(self, pressure: float, began_s: float, key_id: str = "") -> None:
        """Adds a sample of work that began then: its queueing time as a multiple of the tolerated one, and the key it
        belongs to, where that may be the cause."""
        if self._tolerated_s is not None and not self._gate.counts_from(began_s):
            return
        now_s = self._clock.elapsed_s()
        if not self._samples or now_s - self._round_began_at_s > STALE_S:
            self.forget()
            self._round_began_at_s = now_s
        self._samples.append(pressure)
        self._key_ids.add(key_id)
        if len(self._samples) >= self._least_samples and now_s - self._round_began_at_s >= self._round_s:
            pressure = low_sample(self._samples, self._share)
            only_key_id = next(iter(self._key_ids)) if len(self._key_ids) == 1 else ""
            self.forget()
            self._objected_at_s = now_s if pressure > 1 else -math.inf
            self._gate.judge(pressure, self._tolerated_s, only_key_id or None)

    def withdraw(self, pressure: float) -> None:
        """Removes a sample with this pressure, which turned out not to be due to a queue."""
        if pressure in self._samples:
            self._samples.remove(pressure)

    def objects(self) -> bool:
        """Returns whether its last verdict, of the last second, was that there is a queue: then no limit grows."""
        return self._clock.elapsed_s() - self._objected_at_s < NO_GROWTH_S

    def forget(self) -> None:
        self._samples.clear()
        self._key_ids.clear()


def low_sample(samples: Sequence[float], share: float = LOWEST_QUARTER) -> float:
    """Returns the sample above this share of them."""
    return sorted(samples)[int(len(samples) * share)]
