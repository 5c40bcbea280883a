"""How many connections an edge has: fewer than the process has descriptors, for it needs others beside them.

Where there are too many, the one that has waited longest without a request makes room for the next. Who is being
answered is never cut off for it.
"""

import asyncio
import resource
from collections.abc import Callable
from typing import Final

from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Count
from services.chassis.timing.clock import Clock

MOST_CONNECTIONS: Final = 10_000
# The others are for services, databases and files.
DESCRIPTORS_SHARE: Final = 0.75
TOLD_EACH_S: Final = 60.0


def most_connections(asked: int) -> int:
    """What the settings ask for, as far as there are descriptors."""
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
        # Who has waited longest comes first.
        self._waiting: dict[asyncio.Transport, Callable[[], None]] = {}

    def add(self) -> bool:
        """Whether there is room for another. It is counted in any case, until it leaves."""
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
        """For a request: until then, `close` may be called to make room."""
        self._waiting.pop(transport, None)
        self._waiting[transport] = close

    def work(self, transport: asyncio.Transport) -> None:
        """It has asked for something."""
        self._waiting.pop(transport, None)

    def note_full(self) -> None:
        """Once a minute: a flood must not fill the log as well."""
        now_s = self._clock.elapsed_s()
        if self._told_at_s is None or now_s - self._told_at_s >= TOLD_EACH_S:
            self._told_at_s = now_s
            self._log.warning("connections.full", reason=f"{self.most} are open")
