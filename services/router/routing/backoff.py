"""Tracks the retry-after of a model's server, and the chats that probe it meanwhile.

A `retry-after` is a guess, and sometimes wrong. So while it lasts, chats that no other model takes are let through: as
many as were running when the server refused one more, and beyond that one at a time, as a probe. A probe that is not
refused ends the backoff for all chats.

Pure except for the clock: no task, no timer, no lock. Used by a single event loop.
"""

import math
from typing import Final

from services.chassis.timing.clock import Clock

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
