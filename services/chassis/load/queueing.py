"""Whether there is a queue: measured by samples, and told to whoever decides how many may run at once."""

import math
from collections.abc import Sequence
from typing import Final, Protocol

from services.chassis.timing.clock import Clock

# A verdict needs so many samples, and so much time. What is older than a stale round says nothing about now.
LEAST_SAMPLES: Final = 8
ROUND_S: Final = 0.25
STALE_S: Final = 60.0
# For so long nothing grows after another signal has said that it queues.
NO_GROWTH_S: Final = 1.0
# A quarter of the samples of a round is lower than the one that counts.
LOWEST_QUARTER: Final = 0.25


class QueueingListener(Protocol):
    """The gate, as a signal sees it."""

    def add(self, signal: "QueueingSignal") -> None: ...

    def counts_from(self, began_s: float) -> bool:
        """Whether what was let in then was so under the limit as it is now."""
        ...

    def judge(self, pressure: float, tolerated_s: float | None, only_key_id: str | None = None) -> None: ...


class QueueingSignal:
    """One way to measure queueing. Of a round of samples a low one counts: in a queue everybody waits, so neither one
    slow piece of work nor a few of them are taken for one."""

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
        """`tolerated_s` is given where it is the very ones who were let in that wait for so long in a queue. `share` is
        how many of a round's samples may be low although there is a queue."""
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
        """Of something that began then: the time that it queued, as a multiple of what is tolerated; and whose it was,
        where that may be the reason."""
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
        """One that was noted with this says nothing of a queue after all."""
        if pressure in self._samples:
            self._samples.remove(pressure)

    def objects(self) -> bool:
        """To growth: its last verdict was that there is a queue. Without samples it is not heard for ever."""
        return self._clock.elapsed_s() - self._objected_at_s < NO_GROWTH_S

    def forget(self) -> None:
        self._samples.clear()
        self._key_ids.clear()


def low_sample(samples: Sequence[float], share: float = LOWEST_QUARTER) -> float:
    """Such a share of them is lower."""
    return sorted(samples)[int(len(samples) * share)]
