"""The limit on a process's connections: fewer than it has file descriptors, as it needs others beside them.

When it is reached, the connection that has been idle longest is closed for the next one. A connection that is being
answered is never closed for it.
"""

import asyncio
import resource
from collections.abc import Callable
from typing import Final

from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Count
from services.chassis.timing.deadlines import Clock

MOST_CONNECTIONS: Final = 10_000
# The other descriptors are for services, databases and files.
DESCRIPTORS_SHARE: Final = 0.75
TOLD_EACH_S: Final = 60.0


def most_connections(asked: int) -> int:
    """Returns the configured limit, capped by the descriptor limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return asked
    return min(asked, int(soft * DESCRIPTORS_SHARE))


class ConnectionLimit:
    def __init__(self, most: int, clock: Clock, log: Log) -> None:
        self.most = most
        self.open = 0
        self.idle_closed = Count()
        self.refused = Count()
        self._clock = clock
        self._log = log
        self._told_at_s: float | None = None
        # The connection that has been idle longest comes first.
        self._waiting: dict[asyncio.Transport, Callable[[], None]] = {}

    def add(self) -> bool:
        """Counts a connection until `remove`, and returns whether there is room for it."""
        self.open += 1
        if self.open <= self.most:
            return True
        self.note_full()
        if self._waiting:
            self.idle_closed.value += 1
            transport = next(iter(self._waiting))
            self._waiting.pop(transport)()
            return True
        self.refused.value += 1
        return False

    def remove(self, transport: asyncio.Transport) -> None:
        self.open -= 1
        self._waiting.pop(transport, None)

    def wait(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        """Marks a connection as idle: `close` may be called to make room."""
        self._waiting.pop(transport, None)
        self._waiting[transport] = close

    def work(self, transport: asyncio.Transport) -> None:
        """Marks a connection as busy."""
        self._waiting.pop(transport, None)

    def note_full(self) -> None:
        """Logs that the limit is reached, at most once a minute."""
        now_s = self._clock.elapsed_s()
        if self._told_at_s is None or now_s - self._told_at_s >= TOLD_EACH_S:
            self._told_at_s = now_s
            self._log.warning("connections.full", reason=f"{self.most} are open")
