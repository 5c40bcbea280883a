"""Both sides of an exchange rest for a moment after a message, so that what comes meanwhile leaves together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

# For so many calls.
Rest = Callable[[int], Awaitable[None]]

# A message costs each side as much as twenty items do. So the rest is so long for every call that is under way; alone,
# an item leaves at once.
REST_PER_CALL_S: Final = 0.000025
LONGEST_REST_S: Final = 0.005
# One that is shorter is not worth its timer, which counts milliseconds.
SHORTEST_REST_S: Final = 0.001


async def rest_among(calls: int) -> None:
    rest_s = min(LONGEST_REST_S, calls * REST_PER_CALL_S)
    if rest_s >= SHORTEST_REST_S:
        await asyncio.sleep(rest_s)
