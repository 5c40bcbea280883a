"""Remains of a call when it is over."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

OURS = ("edge.", "services.", "legato_protos.")
# What is merely under way will have come to its end by then.
WAIT_TIMEOUT_S = 60.0


@asynccontextmanager
async def nothing_is_left(*kinds: type) -> AsyncIterator[None]:
    """Checks without the garbage collector. What goes round in a circle waits for it, and it counts objects and not
    bytes: some thousand of them that hold prompts of megabytes are more memory than there is. It also is memory that
    the next chat cannot use, which cost a tenth of the processor time of each.

    Counts these kinds, or all that are ours and the messages that hold what was said."""
    gc.collect()
    gc.disable()
    before = _count(kinds)
    try:
        yield
        due_s = asyncio.get_running_loop().time() + WAIT_TIMEOUT_S
        while (left := _count(kinds) - before) and asyncio.get_running_loop().time() < due_s:
            await asyncio.sleep(0.02)
        assert not left, left
    finally:
        gc.enable()


def _count(kinds: tuple[type, ...]) -> "Counter[str]":
    """Counts by type, since those of one call make room for those of others."""
    found = [type(each) for each in gc.get_objects()]
    return Counter(
        kind.__qualname__ for kind in found if (kind in kinds if kinds else str(kind.__module__).startswith(OURS))
    )
