"""The connections and places of the console: for pages, and apart from them for events of the payment provider."""

from typing import Final

from console.web.request_limit import RequestLimit
from services.chassis.http.addresses import Addresses
from services.chassis.http.connection_limit import (
    ConnectionLimit,
    ConnectionsByAddress,
    most_connections,
    show_connections,
)
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import Clock

# Of the connections. An idle one makes room for the next, so a request that finds a place finds a connection.
WEBHOOKS_SHARE: Final = 0.1
# Of the places of each kind, and of the connections.
CLIENT_SHARE: Final = 0.25


class Capacity:
    def __init__(self, connections: int, addresses: Addresses, clock: Clock, log: Log) -> None:
        most = most_connections(connections)
        by_address = ConnectionsByAddress(_share(most, CLIENT_SHARE), addresses)
        self.addresses = addresses
        self.connections = ConnectionLimit(most, clock, log, by_address)
        webhooks = _share(most, WEBHOOKS_SHARE)
        self.webhooks = RequestLimit(webhooks, _share(webhooks, CLIENT_SHARE))
        self.pages = RequestLimit(most - webhooks, _share(most - webhooks, CLIENT_SHARE))


def _share(most: int, share: float) -> int:
    return max(1, int(most * share))


def show_capacity(registry: Registry, capacity: Capacity) -> None:
    show_connections(registry, capacity.connections, "legato_console_connections")
    registry.counter(
        "legato_console_requests_turned_away",
        "Requests of the console that were refused, as too many were being answered.",
        lambda: {"page": capacity.pages.refused, "webhook": capacity.webhooks.refused},
        "kind",
    )
