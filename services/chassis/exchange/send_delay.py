"""Delays the next message of an exchange a little, so that items batch up."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

# Takes the number of calls in flight.
SendDelay = Callable[[int], Awaitable[None]]

# A message costs each side as much as twenty items do. So the delay grows with the calls in flight; alone, an item is
# sent at once.
DELAY_PER_CALL_S: Final = 0.000025
LONGEST_DELAY_S: Final = 0.005
# A shorter one is not worth its timer, which has a resolution of milliseconds.
SHORTEST_DELAY_S: Final = 0.001


async def delay_send(calls: int) -> None:
    delay_s = min(LONGEST_DELAY_S, calls * DELAY_PER_CALL_S)
    if delay_s >= SHORTEST_DELAY_S:
        await asyncio.sleep(delay_s)
