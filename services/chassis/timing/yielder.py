"""Long work in slices, between which other tasks run."""

import asyncio
from time import perf_counter

# A turn of the event loop in which nobody else works takes less.
IDLE_TURN_S = 0.0002
# Taken when others work: their work takes several turns of the loop, each of which would meet a slice; and a busy
# system schedules a process late that never sleeps.
PAUSE_S = 0.002


class Yielder:
    """Adds up work, in any unit, and gives others their turn when a slice is full: `await yielder.spend(len(piece))`.
    It pauses if they used it, and goes on at once if nobody was waiting.

    Slices are measured by amount and not by time, so that the same work always yields at the same places. Small work
    never yields, and costs no more than an addition."""

    __slots__ = ("_done", "_slice")

    def __init__(self, slice_size: int) -> None:
        self._slice = slice_size
        self._done = 0

    async def spend(self, work: int) -> None:
        self._done += work
        if self._done >= self._slice:
            self._done = 0
            began_s = perf_counter()
            await asyncio.sleep(0)
            if perf_counter() - began_s > IDLE_TURN_S:
                await asyncio.sleep(PAUSE_S)
