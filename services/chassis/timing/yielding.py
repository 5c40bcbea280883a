"""Long work on an event loop, in slices: between two of them, others have their turn."""

import asyncio

# Longer than a moment, because what others do takes several rounds of the loop, each of which would meet a slice; and
# because a system that is busy gives a process that never rests its processor late.
REST_S = 0.002


class Turns:
    """Adds up work, in whatever unit, and says whenever it comes to a slice:

        if turns.are_due(len(piece)):
            await turns.rest()

    By amount and not by time, so that the same work always yields at the same places; and who has little to do never
    yields, and pays for no more than a sum."""

    __slots__ = ("_done", "_slice")

    def __init__(self, slice_size: int) -> None:
        self._slice = slice_size
        self._done = 0

    def are_due(self, work: int) -> bool:
        self._done += work
        return self._done >= self._slice

    async def rest(self) -> None:
        self._done = 0
        await asyncio.sleep(REST_S)
