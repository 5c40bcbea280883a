"""Whether this process can take on another chat, by how late it runs already.

Two queues are measured: that of the event loop, where everything that this process does waits for its turn, and that
before metering, which shows in how long it takes to hold credit. Neither says anything while there is no queue. One
stall, of a collection of garbage, of a disk or of the whole machine, is none; and a limit ends soon after its cause.
"""

import asyncio
from typing import Final

from services.chassis.errors import LegatoError
from services.chassis.load.admission import Gate, Permit
from services.chassis.load.queueing import QueueingSignal
from services.chassis.telemetry.metrics import STEP_BOUNDS_S, Histogram
from services.chassis.timing.clock import Clock

# DAGOR decides by 20 ms for all of WeChat, on machines that have nothing else to do.
LATENESS_TOLERATED_S: Final = 0.05
RESERVE_TOLERATED_S: Final = 0.25
SAMPLE_EACH_S: Final = 0.05
# A verdict takes so long at least, and a limit that none confirms is gone after this.
ROUND_S: Final = 0.5
LIFETIME_S: Final = 1.5
# So few chats do not keep a processor busy, so it is not they who make the loop late.
LEAST_CHATS: Final = 64


class EdgeSaturation:
    def __init__(self, clock: Clock, tolerated_s: float = LATENESS_TOLERATED_S) -> None:
        """Where no time is tolerated, what is measured is told but counts for nothing: then everybody is let in."""
        self._clock = clock
        self._tolerated_s = tolerated_s
        self._gate = Gate("The service", clock, least=LEAST_CHATS, lifetime_s=LIFETIME_S)
        self._lateness = QueueingSignal(self._gate, clock, round_s=ROUND_S)
        # Not by Little's law: a chat waits for metering more than once, so the queue is longer than this wait tells.
        # All must wait: those who were held up by one stall come to their end together, and are many.
        self._reserving = QueueingSignal(self._gate, clock, share=0.0, round_s=ROUND_S)
        # All that was measured, for whoever looks.
        self.lateness_s = Histogram(STEP_BOUNDS_S)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> int:
        return self._gate.running

    @property
    def limit(self) -> float:
        return self._gate.limit

    def acquire_permit(self, key_id: str) -> Permit:
        """For one chat: `with saturation.acquire_permit(key_id): …`. Raises SATURATED."""
        return self._gate.acquire(key_id)

    @property
    def is_reached(self) -> bool:
        """Whether somebody who comes now may be refused."""
        return self._gate.running >= self._gate.limit

    def refusal(self, key_id: str) -> LegatoError | None:
        """In place of a place: what one who comes now is told; None where there is room."""
        return self._gate.refusal(key_id)

    def note_reserve(self, took_s: float) -> None:
        if self._tolerated_s:
            self._reserving.note(took_s / RESERVE_TOLERATED_S, self._clock.elapsed_s() - took_s)

    def note_lateness(self, late_s: float) -> None:
        self.lateness_s.observe(late_s)
        if self._tolerated_s:
            self._lateness.note(late_s / self._tolerated_s, self._clock.elapsed_s() - late_s)

    def start(self) -> None:
        self._sample_later()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sample_later(self) -> None:
        due_s = self._clock.elapsed_s() + SAMPLE_EACH_S
        self._timer = asyncio.get_running_loop().call_later(SAMPLE_EACH_S, self._sample, due_s)

    def _sample(self, due_s: float) -> None:
        self.note_lateness(max(0.0, self._clock.elapsed_s() - due_s))
        self._sample_later()
