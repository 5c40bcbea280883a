"""Polls the queue length of a model's server once a second while chats run there, and keeps it short.

Queued requests are among those running there, so the concurrency limit is lowered by the excess until the next poll. If
the server does not answer, the queue is unknown and no chat is refused.
"""

import asyncio
import math
from typing import Final, Protocol

from services.chassis.load.admission import Gate
from services.chassis.timing.deadlines import Clock

LOOK_EACH_S: Final = 1.0
# The last reading expires after this long.
STALE_S: Final = 3.0
MOST_WAITING: Final = 8


class Gauge(Protocol):
    async def read(self) -> float | None: ...

    async def aclose(self) -> None: ...


class QueueWatch:
    """The queue watch of one model."""

    def __init__(self, gauge: Gauge, gate: Gate, clock: Clock, most_waiting: int = MOST_WAITING) -> None:
        self._gauge = gauge
        self._gate = gate
        self._clock = clock
        self._most_waiting = most_waiting
        self._known_at_s = -math.inf
        self._empty_in_a_row = 0
        self._task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Starts polling when a chat is sent to the model."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look_while_used())

    def note(self, waiting: float | None) -> None:
        """Applies one reading of the queue length; None if the read failed."""
        gate, now_s = self._gate, self._clock.elapsed_s()
        if waiting is None:
            if now_s - self._known_at_s >= STALE_S:
                gate.told_limit = math.inf
            return
        self._known_at_s = now_s
        self._empty_in_a_row = 0 if waiting else self._empty_in_a_row + 1
        if waiting > self._most_waiting:
            gate.told_limit = max(1.0, gate.running - (waiting - self._most_waiting))
        elif gate.told_limit < math.inf:
            if waiting:
                gate.told_limit = gate.running + self._most_waiting - waiting
            elif self._empty_in_a_row == 1:
                gate.told_limit = 2 * max(gate.told_limit, self._most_waiting)
            else:
                gate.told_limit = math.inf

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._gauge.aclose()

    async def _look_while_used(self) -> None:
        try:
            while True:
                self.note(await self._gauge.read())
                if not self._gate.running:
                    return
                await asyncio.sleep(LOOK_EACH_S)
        finally:
            self._gate.told_limit = math.inf
            self._task = None
