"""Keepalive comments in a stream whose first token takes long, so that proxies do not time it out.

The first comment opens the response and so fixes its status. It is sent only after a pause: an error before that still
has its own status.
"""

import asyncio
from collections.abc import Awaitable, Callable


class Keepalive:
    def __init__(self, write: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._write = write
        self._every_s = every_s
        self._due: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None

    def start(self) -> None:
        # A timer is cheaper than a task: nearly every answer begins before it is due.
        self._due = asyncio.get_running_loop().call_later(self._every_s, self._give)

    def stop(self) -> None:
        if self._due is not None:
            self._due.cancel()
        if self._writing is not None:
            self._writing.cancel()

    def _give(self) -> None:
        if self._writing is None or self._writing.done():
            # While the client does not read the last comment, another would not help.
            self._writing = asyncio.ensure_future(self._write())
        self.start()
