"""Long work on an event loop, in slices: between two of them, others have their turn."""

import asyncio

# Longer than a moment, because what others do takes several rounds of the loop, each of which would meet a slice; and
# because a system that is busy gives a process that never rests its processor late.
PAUSE_S = 0.002


class Yielder:
    """Adds up work, in whatever unit, and says whenever it comes to a slice:

        if yielder.is_due(len(piece)):
            await yielder.pause()

    By amount and not by time, so that the same work always yields at the same places; and who has little to do never
    yields, and pays for no more than a sum."""

    __slots__ = ("_done", "_slice")

    def __init__(self, slice_size: int) -> None:
        self._slice = slice_size
        self._done = 0

    def is_due(self, work: int) -> bool:
        self._done += work
        return self._done >= self._slice

    async def pause(self) -> None:
        self._done = 0
        await asyncio.sleep(PAUSE_S)
