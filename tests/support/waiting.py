"""Waiting for what should come, and failing where it does not."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# Far longer than anything takes on an idle machine: a busy one must not fail a test.
WAIT_TIMEOUT_S = 120.0
POLL_S = 0.02


async def until(is_so: Callable[[], object], within_s: float = 90) -> None:
    async with asyncio.timeout(within_s):
        while not is_so():
            await asyncio.sleep(0.01)


def wait_until(condition: Callable[[], Found], timeout_s: float = WAIT_TIMEOUT_S) -> Found:
    """Returns what `condition` gives, once truthy."""
    give_up_at_s = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() > give_up_at_s:
            raise AssertionError(f"waited {timeout_s:.0f} s in vain")
        time.sleep(POLL_S)
    return found
