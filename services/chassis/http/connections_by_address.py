"""Counts the connections of each client's address, so that one cannot take all of them."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator

from services.chassis.http.addresses import Addresses, client_network


class ConnectionsByAddress:
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
