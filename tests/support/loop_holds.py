"""How long work holds an event loop: what others on the same loop would wait for."""

import asyncio
import time
from collections.abc import Awaitable

SHORTER_THAN_A_REST_S = 0.0005


async def longest_hold_s(work: Awaitable[object]) -> float:
    """The most processor time between two turns of the loop while the work runs. Processor time, so that a busy machine
    makes no difference; whatever the work raises is not told."""
    longest_s = 0.0
    began_s = time.thread_time()
    working = asyncio.ensure_future(work)
    while not working.done():
        await asyncio.sleep(SHORTER_THAN_A_REST_S)
        now_s = time.thread_time()
        longest_s, began_s = max(longest_s, now_s - began_s), now_s
    working.cancelled() or working.exception()
    return longest_s
