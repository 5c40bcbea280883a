"""Times how long work holds an event loop: what others on it would wait for."""

import asyncio
import gc
import time
from collections.abc import Awaitable

SHORTER_THAN_A_REST_S = 0.0005


def forget_older_garbage() -> None:
    """Keeps the garbage collector from looking through what other tests left, as in a process that serves: after
    thousands of tests that takes half a second."""
    gc.collect()
    gc.freeze()


async def longest_hold_s(work: Awaitable[object]) -> float:
    """Measures the most CPU time between two turns of the loop while the work runs. CPU time, so that a busy machine
    makes no difference; whatever the work raises is ignored."""
    forget_older_garbage()
    longest_s = 0.0
    began_s = time.thread_time()
    working = asyncio.ensure_future(work)
    while not working.done():
        await asyncio.sleep(SHORTER_THAN_A_REST_S)
        now_s = time.thread_time()
        longest_s, began_s = max(longest_s, now_s - began_s), now_s
    working.cancelled() or working.exception()
    return longest_s
