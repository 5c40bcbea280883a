"""Shows the supervisor that a process works: its event loop writes a byte to a pipe every second.

An overloaded process is late with everything, its health check included, but its event loop turns. One that hangs or is
stopped writes nothing.
"""

import asyncio
import os
from contextlib import suppress
from typing import Final

VARIABLE = "LEGATO_PULSE_FD"
BEAT_EVERY_S: Final = 1.0


def begin() -> None:
    """Begins to write, on the running event loop. Does nothing in a process that was started by hand."""
    given = os.environ.pop(VARIABLE, None)
    if given is None:
        return
    pipe = int(given)
    os.set_inheritable(pipe, False)
    os.set_blocking(pipe, False)
    _beat(asyncio.get_running_loop(), pipe)


def _beat(loop: asyncio.AbstractEventLoop, pipe: int) -> None:
    # The pipe is full if nobody reads, and broken if the supervisor has ended.
    with suppress(OSError):
        os.write(pipe, b".")
    loop.call_later(BEAT_EVERY_S, _beat, loop, pipe)
