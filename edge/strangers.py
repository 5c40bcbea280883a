"""Those who come with wrong keys, counted by address.

Each edge counts for itself. Keys that are good are never refused here, wherever they come from: behind one address
there may be thousands of people, and one of them may be guessing.
"""

import ipaddress

from edge.addresses import Address, Addresses
from edge.asgi import HttpScope
from services.chassis.clock import Clock
from services.chassis.errors import LegatoError, Reason
from services.chassis.gcra import Buckets, Rate

# A customer of a provider has at least as many addresses of the newer kind as such a network holds.
ONE_STRANGER_BITS = 64


class Strangers:
    def __init__(self, wrong_keys_per_minute: int, addresses: Addresses, clock: Clock) -> None:
        """0: any number."""
        self._rate = Rate(wrong_keys_per_minute, wrong_keys_per_minute) if wrong_keys_per_minute else None
        self._addresses = addresses
        self._buckets = Buckets(clock)

    def count(self, scope: HttpScope) -> None:
        """After a wrong key. Raises TOO_MANY_WRONG_KEYS."""
        if self._rate is None:
            return
        address = self._addresses.of(scope)
        if address is None or address.is_loopback:
            return
        wait_ns = self._buckets.take(_stranger(address), self._rate)
        if wait_ns:
            message = "Too many wrong API keys came from this address. Please check the key, and retry later."
            raise LegatoError(Reason.TOO_MANY_WRONG_KEYS, message, retry_after_s=wait_ns / 1e9)

    def __len__(self) -> int:
        return len(self._buckets)


def _stranger(address: Address) -> int:
    if isinstance(address, ipaddress.IPv6Address):
        # Below zero, so that none is taken for an address of the older kind.
        return -(int(address) >> ONE_STRANGER_BITS) - 1
    return int(address)
