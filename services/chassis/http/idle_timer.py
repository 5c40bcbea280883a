"""The timeout of a connection, which waits for one thing after the other.

A timer of the event loop costs more than reading a small request, and nearly none of them expires. So each connection
has one timer, which is left to run; when it expires, it checks whether the deadline has really passed.
"""

import asyncio
from collections.abc import Callable


class IdleTimer:
    __slots__ = ("_due_s", "_loop", "_otherwise", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due_s = 0.0
        self._otherwise: Callable[[], object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, within_s: float, otherwise: Callable[[], object]) -> None:
        """Sets a deadline, replacing the previous one."""
        self._due_s = self._loop.time() + within_s
        self._otherwise = otherwise
        if self._timer is not None:
            if self._timer.when() <= self._due_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(self._due_s, self._look)

    def is_for(self, otherwise: Callable[[], object]) -> bool:
        return self._otherwise == otherwise

    def clear(self) -> None:
        """Cancels the wait."""
        self._otherwise = None

    def close(self) -> None:
        self._otherwise = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._otherwise is None:
            return
        if self._loop.time() < self._due_s:
            self._timer = self._loop.call_at(self._due_s, self._look)
            return
        otherwise, self._otherwise = self._otherwise, None
        otherwise()
