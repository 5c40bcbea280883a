"""Both sides of an exchange rest for a moment after a message, so that what comes meanwhile leaves together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

# For so many calls.
SendDelay = Callable[[int], Awaitable[None]]

# A message costs each side as much as twenty items do. So the rest is so long for every call that is under way; alone,
# an item leaves at once.
DELAY_PER_CALL_S: Final = 0.000025
LONGEST_DELAY_S: Final = 0.005
# One that is shorter is not worth its timer, which counts milliseconds.
SHORTEST_DELAY_S: Final = 0.001


async def delay_send(calls: int) -> None:
    delay_s = min(LONGEST_DELAY_S, calls * DELAY_PER_CALL_S)
    if delay_s >= SHORTEST_DELAY_S:
        await asyncio.sleep(delay_s)
