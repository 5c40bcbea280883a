"""The limit on the requests that a process answers at the same time, in all and for one client."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from services.chassis.errors import unavailable
from services.chassis.http.addresses import Address, client_network


class RequestLimit:
    def __init__(self, most: int, most_by_client: int) -> None:
        self.most = most
        self.under_way = 0
        self.refused = 0
        self._most_by_client = most_by_client
        self._by_client: Counter[int] = Counter()

    @contextlib.contextmanager
    def place(self, address: Address | None) -> Iterator[None]:
        """Takes a place for one request; raises UNAVAILABLE. Clients without an address share the places in all."""
        client = None if address is None else client_network(address)
        if self.under_way >= self.most or (client is not None and self._by_client[client] >= self._most_by_client):
            self.refused += 1
            raise unavailable("Capacity for another request")
        self.under_way += 1
        if client is not None:
            self._by_client[client] += 1
        try:
            yield
        finally:
            self.under_way -= 1
            if client is not None:
                self._by_client[client] -= 1
                if not self._by_client[client]:
                    del self._by_client[client]
