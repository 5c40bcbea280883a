"""The limit on a process's connections: fewer than it has file descriptors, as it needs others beside them.

When it is reached, the connection that has been idle longest is closed for the next one. A connection that is being
answered is never closed for it.
"""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from services.chassis.http.addresses import Addresses, client_network
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import Clock

MOST_CONNECTIONS: Final = 10_000
# The other descriptors are for services, databases and files.
DESCRIPTORS_SHARE: Final = 0.75
LOGGED_EACH_S: Final = 60.0


def most_connections(asked: int) -> int:
    """Returns the configured limit, capped by the descriptor limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return asked
    return min(asked, int(soft * DESCRIPTORS_SHARE))


class ConnectionsByAddress:
    """Counts the connections of each client's address, so that one cannot take all of them."""

    def __init__(self, most: int, addresses: Addresses) -> None:
        """Takes the limit of an address. Those of trusted proxies have none, as many clients share each of them."""
        self._most = most
        self._addresses = addresses
        self._clients: dict[asyncio.Transport, int] = {}
        self._open: Counter[int] = Counter()

    def add(self, transport: asyncio.Transport) -> bool:
        """Counts a connection until `remove`, and returns whether its address has no more than it may."""
        peer = transport.get_extra_info("peername")
        # Unix sockets have no address.
        address = self._addresses.of_connection(peer[0]) if isinstance(peer, tuple) else None
        if address is None:
            return True
        client = self._clients[transport] = client_network(address)
        self._open[client] += 1
        return self._open[client] <= self._most

    def remove(self, transport: asyncio.Transport) -> None:
        client = self._clients.pop(transport, None)
        if client is not None:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    def of_same_client(
        self, transport: asyncio.Transport, others: Iterable[asyncio.Transport]
    ) -> Iterator[asyncio.Transport]:
        client = self._clients[transport]
        return (other for other in others if self._clients.get(other) == client)


class ConnectionLimit:
    def __init__(self, most: int, clock: Clock, log: Log, by_address: ConnectionsByAddress | None = None) -> None:
        self.most = most
        self._by_address = by_address
        self.open = 0
        self.idle_closed = 0
        self.refused = 0
        self._clock = clock
        self._log = log
        self._logged_at_s: float | None = None
        # The connection that has been idle longest comes first.
        self._waiting: dict[asyncio.Transport, Callable[[], None]] = {}

    def add(self, transport: asyncio.Transport) -> bool:
        """Counts a connection until `remove`, and returns whether there is room for it."""
        self.open += 1
        if self._by_address is not None and not self._by_address.add(transport):
            # An address that has its share makes room by itself.
            return self._close_first(self._by_address.of_same_client(transport, self._waiting))
        if self.open <= self.most:
            return True
        self.record_full()
        return self._close_first(self._waiting)

    def _close_first(self, idle: Iterable[asyncio.Transport]) -> bool:
        transport = next(iter(idle), None)
        if transport is None:
            self.refused += 1
            return False
        self.idle_closed += 1
        self._waiting.pop(transport)()
        return True

    def remove(self, transport: asyncio.Transport) -> None:
        self.open -= 1
        self._waiting.pop(transport, None)
        if self._by_address is not None:
            self._by_address.remove(transport)

    def wait(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        """Marks a connection as idle: `close` may be called to make room."""
        self._waiting.pop(transport, None)
        self._waiting[transport] = close

    def work(self, transport: asyncio.Transport) -> None:
        """Marks a connection as busy."""
        self._waiting.pop(transport, None)

    def record_full(self) -> None:
        """Logs that the limit is reached, at most once a minute."""
        now_s = self._clock.elapsed_s()
        if self._logged_at_s is None or now_s - self._logged_at_s >= LOGGED_EACH_S:
            self._logged_at_s = now_s
            self._log.warning("connections.full", reason=f"{self.most} are open")


def show_connections(registry: Registry, connections: ConnectionLimit, name: str = "legato_connections") -> None:
    registry.gauge(name, "Open client connections.", lambda: connections.open)
    registry.gauge(f"{name}_limit", "Limit of open client connections.", lambda: connections.most)
    registry.counter(
        f"{name}_turned_away",
        "Connections beyond the limit: idle ones closed to make room, and new ones refused.",
        lambda: {"idle": connections.idle_closed, "refused": connections.refused},
        "kind",
    )
