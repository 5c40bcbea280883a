"""The time for which a model's server asked to be left alone, and the chats that try it meanwhile.

A `retry-after` is a guess, and now and then a wrong one. So while it lasts, chats that no other model takes are let
through as far as the server has shown that it can bear them: as many as ran there when it refused one more, and beyond
that one at a time, as a probe. A probe that is not refused ends the time for everybody.

Pure but for the clock: no task, no timer, no lock. One event loop uses it.
"""

import math
from typing import Final

from services.chassis.timing.clock import Clock

LONGEST_S: Final = 60.0
# A server that refuses does so at once: a probe that was not refused for so long was accepted, though it may think for
# much longer.
ACCEPTED_AFTER_S: Final = 1.0


class Backoff:
    """Of one model."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = -math.inf
        # How many ran when one more was refused.
        self._accepted = 0
        self._probe_id: int | None = None
        self._probe_sent_at_s = 0.0
        self._last_id = 0

    @property
    def left_s(self) -> float:
        """How long the server is to be left alone yet, by its own word."""
        now_s = self._clock.elapsed_s()
        if self._probe_id is not None and now_s - self._probe_sent_at_s >= ACCEPTED_AFTER_S:
            self._end()
        return max(0.0, self._until_s - now_s)

    def refused(self, retry_after_s: float, running: int) -> None:
        """Of one that was sent there; `running` are the others."""
        until_s = self._clock.elapsed_s() + min(retry_after_s, LONGEST_S)
        self._accepted = min(self._accepted, running) if self.left_s else running
        self._until_s = max(self._until_s, until_s)

    def has_room(self, running: int) -> bool:
        return not self.left_s or running < self._accepted or self._probe_id is None

    def send(self, running: int) -> int | None:
        """One goes there, for which there is room. Gives the number of the probe, if it is one."""
        if not self.left_s or running < self._accepted:
            return None
        self._last_id += 1
        self._probe_id, self._probe_sent_at_s = self._last_id, self._clock.elapsed_s()
        return self._probe_id

    def accepted(self, probe_id: int | None) -> None:
        """Its answer has begun."""
        if probe_id is not None and probe_id == self._probe_id:
            self._end()

    def over(self, probe_id: int | None) -> None:
        """Whatever became of it: another may try."""
        if probe_id == self._probe_id:
            self._probe_id = None

    def _end(self) -> None:
        self._until_s = -math.inf
        self._probe_id = None
