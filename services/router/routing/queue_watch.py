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


# Tracks the retry-after of a model's server, and the chats that probe it meanwhile.
#
# A `retry-after` is a guess, and sometimes wrong. So while it lasts, chats that no other model takes are let through:
# as many as were running when the server refused one more, and beyond that one at a time, as a probe. A probe that is
# not refused ends the backoff for all chats.
#
# Pure except for the clock: no task, no timer, no lock. Used by a single event loop.

LONGEST_S: Final = 60.0
# A server refuses immediately, so a probe that is not refused for this long was accepted, even if its answer takes much
# longer.
ACCEPTED_AFTER_S: Final = 1.0


class Backoff:
    """The backoff of one model."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = -math.inf
        # How many chats were running when one more was refused.
        self._accepted = 0
        self._probe_id: int | None = None
        self._probe_sent_at_s = 0.0
        self._last_id = 0

    @property
    def left_s(self) -> float:
        """Remaining time of the backoff, in seconds."""
        now_s = self._clock.elapsed_s()
        if self._probe_id is not None and now_s - self._probe_sent_at_s >= ACCEPTED_AFTER_S:
            self._end()
        return max(0.0, self._until_s - now_s)

    def refused(self, retry_after_s: float, running: int) -> None:
        """Records that the server refused a chat; `running` counts the others."""
        until_s = self._clock.elapsed_s() + min(retry_after_s, LONGEST_S)
        self._accepted = min(self._accepted, running) if self.left_s else running
        self._until_s = max(self._until_s, until_s)

    def has_room(self, running: int) -> bool:
        return not self.left_s or running < self._accepted or self._probe_id is None

    def send(self, running: int) -> int | None:
        """Records a chat being sent, after `has_room`. Returns the probe's id if it is a probe."""
        if not self.left_s or running < self._accepted:
            return None
        self._last_id += 1
        self._probe_id, self._probe_sent_at_s = self._last_id, self._clock.elapsed_s()
        return self._probe_id

    def accepted(self, probe_id: int | None) -> None:
        """Ends the backoff if the answer that began is the probe's."""
        if probe_id is not None and probe_id == self._probe_id:
            self._end()

    def over(self, probe_id: int | None) -> None:
        """Clears the probe, whatever its outcome, so that another chat may probe."""
        if probe_id == self._probe_id:
            self._probe_id = None

    def _end(self) -> None:
        self._until_s = -math.inf
        self._probe_id = None
