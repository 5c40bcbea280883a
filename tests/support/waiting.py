"""Waiting for what should come, and failing where it does not."""

import asyncio
from collections.abc import Callable


async def until(is_so: Callable[[], bool], within_s: float = 90) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():
            await asyncio.sleep(0.01)
