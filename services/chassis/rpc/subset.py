"""Chooses the few replicas that a client uses out of many, so that all replicas are used alike.

Replicas lie on a ring, ordered by a hash of their addresses, which is the same for every client. The clients divide the
ring evenly: client `number` of `count` begins at that fraction of it and uses the replicas from there on; the ones
after those replace any that is lost. Every replica has the same number of clients, or one more. When a replica comes
or goes, a client replaces one of its replicas, in rare cases two.
"""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

# With a single replica, its loss would leave the client without any until another is connected.
LEAST_FOR_FAILOVER: Final = 2


@dataclass(frozen=True, slots=True)
class ClientPosition:
    """The position of a client among all clients: `number` is 0 to `count` - 1."""

    number: int
    count: int


# Returns the current position; None while it is unknown.
FindPosition = Callable[[], Awaitable[ClientPosition | None]]


class Choice(NamedTuple):
    # All addresses, the preferred ones first.
    order: list[str]
    # How many of them are used.
    size: int


class Subset:
    """The choice of one client, which depends on the other clients."""

    def __init__(self, size: int, find_position: FindPosition, zone: str = "") -> None:
        """Uses `size` replicas, or more if there are too few clients to use all replicas; 0 means all replicas. Those
        in the same `zone` are preferred."""
        self._size = size
        self._find_position = find_position
        self._zone = zone
        self._position: ClientPosition | None = None

    async def update_position(self) -> None:
        self._position = await self._find_position()

    def choose(self, zones: Mapping[str, str]) -> Choice:
        """Chooses among the addresses in `zones`, which has the zone of each; empty if it is unknown."""
        near = [address for address, zone in zones.items() if zone == self._zone] if self._zone else []
        if not near:
            near = list(zones)
        far = zones.keys() - near
        if self._size == 0 or self._position is None:
            # Without knowing the other clients, a few of many replicas might be the same few for all of them.
            order, size = [*ring(near), *ring(far)], len(near)
        else:
            order = [*order_of(near, self._position), *order_of(far, self._position)]
            size = subset_size(self._size, len(near), self._position.count)
        return Choice(order, max(size, min(LEAST_FOR_FAILOVER, len(order))))


def ring(addresses: Iterable[str]) -> list[str]:
    """Returns the addresses in an order that has nothing to do with machines, whose addresses are often neighbours."""
    return sorted(addresses, key=lambda address: hashlib.blake2b(address.encode()).digest())


def order_of(addresses: Iterable[str], position: ClientPosition) -> list[str]:
    """Returns the ring from the position on."""
    around = ring(addresses)
    first = position.number * len(around) // position.count
    return around[first:] + around[:first]


def subset_size(least: int, replicas: int, clients: int) -> int:
    """Returns how many replicas each client uses, so that every replica is used by one client at least."""
    return min(replicas, max(least, LEAST_FOR_FAILOVER, -(-replicas // clients)))
