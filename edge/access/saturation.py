"""Saturation control: limits the chats of this process by measured queueing.

Two queues are measured: the event loop, where everything that this process does waits for its turn, and metering's,
which shows in how long it takes to hold credit. Without a queue there is no limit. One stall, of the garbage collector,
a disk or the whole machine, is no queue; and a limit ends soon after its cause.
"""

import asyncio
from typing import Final

from services.chassis.load.admission import NO_LIMIT, Gate, QueueingSignal
from services.chassis.telemetry.metrics import STEP_BOUNDS_S, Histogram
from services.chassis.timing.deadlines import Clock

# DAGOR decides by 20 ms for all of WeChat, on machines that have nothing else to do.
LATENESS_TOLERATED_S: Final = 0.05
RESERVE_TOLERATED_S: Final = 0.25
SAMPLE_EACH_S: Final = 0.05
# With so few chats that none can be refused: a wakeup costs an idle process more than the sample itself.
SAMPLE_WITH_FEW_CHATS_EACH_S: Final = 0.5
# The shortest round of measurement, and the time after which an unconfirmed limit ends.
ROUND_S: Final = 0.5
LIFETIME_S: Final = 1.5
# This few chats do not keep a CPU busy, so it is not they who delay the loop.
LEAST_CHATS: Final = 64


class EdgeSaturation:
    def __init__(self, clock: Clock, tolerated_s: float = LATENESS_TOLERATED_S) -> None:
        """Measures; with `tolerated_s` 0 it never limits, so that every chat is admitted."""
        self._clock = clock
        self._tolerated_s = tolerated_s
        # `with saturation.gate.acquire(key_id): …` is one chat's permit. Raises SATURATED.
        self.gate = Gate("The service", clock, least=LEAST_CHATS, lifetime_s=LIFETIME_S)
        self._lateness = QueueingSignal(self.gate, clock, round_s=ROUND_S)
        # All samples must be late: those delayed by one stall end together, and are many.
        self._reserving = QueueingSignal(self.gate, clock, share=0.0, round_s=ROUND_S)
        # All samples, for the metrics.
        self.lateness_s = Histogram(STEP_BOUNDS_S)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_reached(self) -> bool:
        """Returns whether a chat that arrives now may be refused."""
        # The limit itself is worked out only where it can matter.
        return self.gate.running >= LEAST_CHATS and self.gate.running >= self.gate.limit

    def record_reserve(self, took_s: float) -> None:
        if self._tolerated_s:
            self._reserving.record(took_s / RESERVE_TOLERATED_S)

    def record_lateness(self, late_s: float) -> None:
        self.lateness_s.observe(late_s)
        if self._tolerated_s:
            self._lateness.record(late_s / self._tolerated_s)

    @property
    def sample_each_s(self) -> float:
        """The time between two samples of the event loop's lateness."""
        are_few = self.gate.running < LEAST_CHATS // 2 and self.gate.limit >= NO_LIMIT
        return SAMPLE_WITH_FEW_CHATS_EACH_S if are_few else SAMPLE_EACH_S

    def start(self) -> None:
        """Samples the loop's lateness, again and again."""
        each_s = self.sample_each_s
        due_s = self._clock.elapsed_s() + each_s
        self._timer = asyncio.get_running_loop().call_later(each_s, self._sample, due_s)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sample(self, due_s: float) -> None:
        self.record_lateness(max(0.0, self._clock.elapsed_s() - due_s))
        self.start()
