"""Those who come with wrong keys, counted by address.

Each edge counts for itself. Keys that are good are never refused here, wherever they come from: behind one address
there may be thousands of people, and one of them may be guessing.
"""

import ipaddress

from edge.wire.asgi import Headers, HttpScope
from edge.wire.client_address import Address, Addresses
from edge.wire.rate_headers import rate_headers
from protos.metering.v1.metering_pb2 import AdmitResponse
from services.chassis.errors import LegatoError, Reason
from services.chassis.load.gcra import Buckets, Rate
from services.chassis.timing.clock import Clock

# A customer of a provider has at least as many addresses of the newer kind as such a network holds.
CLIENT_NETWORK_BITS = 64


class WrongKeyLimiter:
    def __init__(self, wrong_keys_per_minute: int, addresses: Addresses, clock: Clock) -> None:
        """0: any number."""
        self._rate = Rate(wrong_keys_per_minute, wrong_keys_per_minute) if wrong_keys_per_minute else None
        self._addresses = addresses
        self._buckets = Buckets(clock)

    def count(self, scope: HttpScope) -> None:
        """After a wrong key. Raises TOO_MANY_WRONG_KEYS."""
        if self._rate is None:
            return
        address = self._counted(scope)
        if address is None:
            return
        wait_ns = self._buckets.charge(_bucket_of(address), self._rate)
        if wait_ns:
            message = "Too many wrong API keys came from this address. Please check the key, and retry later."
            raise LegatoError(Reason.TOO_MANY_WRONG_KEYS, message, retry_after_s=wait_ns / 1e9)

    def rates(self, scope: HttpScope) -> Headers:
        """What is left of an address's wrong keys, in the form in which a key is told its rates."""
        if self._rate is None:
            return []
        address = self._counted(scope)
        ahead_ns = 0 if address is None else self._buckets.ahead_ns(_bucket_of(address), self._buckets.now_ns())
        return rate_headers(
            AdmitResponse(
                limit_requests=self._rate.per_minute,
                remaining_requests=self._rate.remaining(ahead_ns),
                reset_requests_ms=-(-ahead_ns // 1_000_000),
            )
        )

    def _counted(self, scope: HttpScope) -> Address | None:
        """Nobody guesses keys from the machine itself."""
        address = self._addresses.of(scope)
        return None if address is None or address.is_loopback else address

    def __len__(self) -> int:
        return len(self._buckets)


def _bucket_of(address: Address) -> int:
    if isinstance(address, ipaddress.IPv6Address):
        # Below zero, so that none is taken for an address of the older kind.
        return -(int(address) >> CLIENT_NETWORK_BITS) - 1
    return int(address)
