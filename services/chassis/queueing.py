"""Whether there is a queue: measured by samples, and told to whoever decides how many may run at once."""

import math
from collections.abc import Sequence
from typing import Final, Protocol

from services.chassis.clock import Clock

# A verdict needs so many samples, and so much time. What is older than a stale round says nothing about now.
LEAST_SAMPLES: Final = 8
ROUND_S: Final = 0.25
STALE_S: Final = 60.0
# For so long nothing grows after somebody has said outright that it is full, or another signal that it queues.
NO_GROWTH_S: Final = 5.0


class Judge(Protocol):
    """The gate, as a signal sees it."""

    def add(self, signal: "Signal") -> None: ...

    def counts_from(self, began_s: float) -> bool:
        """Whether what was measured since then is due to the limit as it is now."""
        ...

    def judge(self, pressure: float, tolerated_s: float | None) -> None: ...


class Signal:
    """One way to measure queueing. Of a round of samples the lowest quarter counts: in a queue everybody waits, so
    neither one slow piece of work nor a few of them are taken for one."""

    def __init__(self, gate: Judge, clock: Clock, tolerated_s: float | None = None) -> None:
        """`tolerated_s` is given where it is the very ones who were let in that wait for so long in a queue."""
        self._gate = gate
        self._clock = clock
        self._tolerated_s = tolerated_s
        self._samples: list[float] = []
        self._round_began_at_s = 0.0
        self._objected_at_s = -math.inf
        gate.add(self)

    def note(self, pressure: float, began_s: float) -> None:
        """Of something that began then: the time that it queued, as a multiple of what is tolerated."""
        if not self._gate.counts_from(began_s):
            return
        now_s = self._clock.elapsed_s()
        if not self._samples or now_s - self._round_began_at_s > STALE_S:
            self._samples.clear()
            self._round_began_at_s = now_s
        self._samples.append(pressure)
        if len(self._samples) >= LEAST_SAMPLES and now_s - self._round_began_at_s >= ROUND_S:
            pressure = lowest_quarter(self._samples)
            self._samples.clear()
            self._objected_at_s = now_s if pressure > 1 else -math.inf
            self._gate.judge(pressure, self._tolerated_s)

    def objects(self) -> bool:
        """To growth: its last verdict was that there is a queue. Without samples it is not heard for ever."""
        return self._clock.elapsed_s() - self._objected_at_s < NO_GROWTH_S

    def forget(self) -> None:
        self._samples.clear()


def lowest_quarter(samples: Sequence[float]) -> float:
    """A quarter of them is lower."""
    return sorted(samples)[len(samples) // 4]
