"""How often what comes is handed on, while many answers come at once.

To hand on a piece costs nearly the same for one chunk as for ten, and costs it in every process up to the client. So
while few answers come, each chunk is handed on as it comes. While many do, an answer rests for a moment after each of
its pieces; what comes meanwhile is the next one, and leaves together with the pieces of others whose rest is over. One
that comes slowly is never late, for its rest is over before it brings anything.
"""

import asyncio
import math
from collections.abc import Callable

# A rest is so much for each answer that comes, and never longer than a reader would notice.
REST_PER_ANSWER_S = 0.0001
LONGEST_REST_S = 0.02
# Rests end together, so often; one that would be shorter is not worth its timer.
BEAT_S = 0.005


class ReadPacer:
    def __init__(self, answers: Callable[[], int]) -> None:
        """`answers` tells how many come."""
        self._loop = asyncio.get_running_loop()
        self._answers = answers
        self._beats: dict[int, list[Callable[[], None]]] = {}

    def pause(self, then: Callable[[], None]) -> bool:
        """Whether who has just handed on a piece should rest; if so, `then` is called when that is over."""
        rest_s = min(LONGEST_REST_S, self._answers() * REST_PER_ANSWER_S)
        if rest_s < BEAT_S:
            return False
        beat = math.ceil((self._loop.time() + rest_s) / BEAT_S)
        resting = self._beats.get(beat)
        if resting is None:
            self._beats[beat] = [then]
            self._loop.call_at(beat * BEAT_S, self._end_rests, beat)
        else:
            resting.append(then)
        return True

    def _end_rests(self, beat: int) -> None:
        for then in self._beats.pop(beat):
            then()
