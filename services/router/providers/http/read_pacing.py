"""Paces reads while many answers stream at once, so that chunks are batched.

Passing on a piece costs nearly the same for one chunk as for ten, in every process up to the client. So with few
answers, each chunk is passed on as it arrives. With many, reading an answer pauses briefly after each piece; what
arrives meanwhile forms the next piece, and pauses end together. A slow answer is never delayed, since its pause is over
before its next chunk.
"""

import asyncio
import math
from collections.abc import Callable

# The pause per concurrent answer, and its maximum, which no reader would notice.
REST_PER_ANSWER_S = 0.0001
LONGEST_REST_S = 0.02
# Pauses end together at multiples of this; a shorter pause is not worth a timer.
BEAT_S = 0.005


class ReadPacer:
    def __init__(self, answers: Callable[[], int]) -> None:
        """`answers` returns the number of concurrent answers."""
        self._loop = asyncio.get_running_loop()
        self._answers = answers
        self._beats: dict[int, list[Callable[[], None]]] = {}

    def pause(self, then: Callable[[], None]) -> bool:
        """Returns whether to pause after a piece; if so, `then` is called when the pause is over."""
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
