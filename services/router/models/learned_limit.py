"""Learns from a server's refusals (429) how many chats it runs at once, so that its places can be shared fairly.

A server that refuses gives no reason: it may be full, or have had enough tokens of one customer this minute. It counts
as full if it refuses several chats of keys that have their share of it already, beside more chats than it has accepted
lately. The limit grows while it is used up and nothing is refused, so a server that has more room is soon sent more.

Pure except for the clock: no task, no timer, no lock. Used by a single event loop.
"""

import math
from typing import Final

from services.chassis.timing.deadlines import Clock

# A server that runs fewer is not worth sharing, and slowness or refusals at such load are not due to it.
LEAST_CHATS: Final = 4
# This many refusals show a limit.
LEAST_REFUSALS: Final = 3
# Of refusals that follow each other within this time, the one with the fewest other chats counts.
ROUND_S: Final = 1.0
# How long the limit lasts that no refusal confirms.
LIFETIME_S: Final = 30.0


class LearnedLimit:
    """The number of chats that a server was seen to run at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refusals = 0
        self._refused_at_s = -math.inf
        # As many other chats as ran when one was refused, and what it has grown by since.
        self._places = 0
        # How many other chats ran at most when one was accepted lately.
        self._accepted_beside = 0
        self._accepted_at_s = -math.inf

    @property
    def is_known(self) -> bool:
        return self._refusals >= LEAST_REFUSALS and self._age_s() < LIFETIME_S

    @property
    def places(self) -> float:
        """The number of chats that may run; infinite if nothing is known."""
        return self._places if self.is_known else math.inf

    def refused(self, beside: int, own: int, keys: int) -> None:
        """Records that the server refused a chat beside so many others, `own` of them of its key, and all of so many
        keys."""
        now_s = self._clock.elapsed_s()
        is_contradicted = beside <= self._accepted_beside and now_s - self._accepted_at_s < ROUND_S
        if beside < LEAST_CHATS or own * keys < beside or is_contradicted:
            return
        age_s = self._age_s()
        if age_s >= LIFETIME_S:
            self._refusals = 0
        self._places = beside if age_s >= ROUND_S else min(self._places, beside)
        self._refusals += 1
        self._refused_at_s = now_s

    def accepted(self, beside: int) -> None:
        """Records that the server accepted a chat that was sent while so many others ran."""
        if not self._refusals:
            return
        now_s = self._clock.elapsed_s()
        if beside >= self._accepted_beside or now_s - self._accepted_at_s >= ROUND_S:
            self._accepted_beside, self._accepted_at_s = beside, now_s
        if beside + 1 >= self._places and self._age_s() >= ROUND_S:
            self._places += 1

    def _age_s(self) -> float:
        return self._clock.elapsed_s() - self._refused_at_s
