"""Networks that keys are used from, for auth, which gives owners a notice of a new one."""

import ipaddress
from itertools import islice
from typing import Final

from edge.backends.auth import Principal
from services.chassis.http.addresses import Addresses
from services.chassis.http.asgi import HttpScope
from services.chassis.timing.deadlines import Clock

KeyNetwork = tuple[str, str]

REPORTED_EVERY_S: Final = 3600.0
# Bounds the memory that clients with many addresses, or with many forged headers, can take.
SEEN_MOST: Final = 100_000
# Several addresses. A longer header is one that a client made up, and is parsed each time.
LONGEST_SEEN_HEADER_BYTES: Final = 200
WAITING_MOST: Final = 10_000


class UsedNetworks:
    """Collects them. A network is the first 24 bits of an IPv4 address, or the first 48 of an IPv6 address. Each is
    told once an hour for each key. Most chats come from an address that was seen within the hour, and cost one lookup
    in a set."""

    def __init__(self, addresses: Addresses, clock: Clock) -> None:
        self._addresses = addresses
        self._clock = clock
        # Keys with addresses, and with the header of a proxy, that were seen since `_since_s`.
        self._seen: set[tuple[str, str, bytes]] = set()
        self._reported: set[KeyNetwork] = set()
        self._since_s = clock.elapsed_s()
        self._waiting: dict[KeyNetwork, None] = {}

    def record(self, principal: Principal, scope: HttpScope) -> None:
        client = scope.get("client")
        if client is None or principal.token_id:
            # A playground's user has signed in, and moves about.
            return
        seen = (principal.key_id, client[0], self._addresses.forwarded_header(scope))
        if seen in self._seen and self._clock.elapsed_s() - self._since_s < REPORTED_EVERY_S:
            return
        self._learn(seen, scope)

    def pop(self, most: int) -> list[KeyNetwork]:
        """Removes and returns networks to tell auth."""
        if not self._waiting:
            return []
        taken = list(islice(self._waiting, most))
        for each in taken:
            del self._waiting[each]
        return taken

    def add(self, networks: list[KeyNetwork]) -> None:
        """Queues networks to tell auth."""
        if len(self._waiting) < WAITING_MOST:
            self._waiting |= dict.fromkeys(networks)

    def _learn(self, seen: tuple[str, str, bytes], scope: HttpScope) -> None:
        now_s = self._clock.elapsed_s()
        if now_s - self._since_s >= REPORTED_EVERY_S:
            self._since_s = now_s
            self._seen.clear()
            self._reported.clear()
        elif len(self._seen) >= SEEN_MOST:
            self._seen.clear()
        if len(seen[2]) <= LONGEST_SEEN_HEADER_BYTES:
            self._seen.add(seen)
        address = self._addresses.of(scope)
        if address is None or address.is_loopback:
            return
        bits = 24 if address.version == 4 else 48
        used = (seen[0], str(ipaddress.ip_network((address, bits), strict=False)))
        if used not in self._reported and len(self._reported) < SEEN_MOST:
            self._reported.add(used)
            self.add([used])
