"""A rate limit on wrong keys, by client address.

Each edge counts separately. Valid keys are never refused here, whatever their address: thousands of users may share one
address, and one of them may be guessing keys.
"""

from edge.wire.responses import rate_headers
from legato_protos.metering.v1.metering_pb2 import AdmitResponse
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.addresses import Addresses
from services.chassis.http.asgi import Headers, HttpScope
from services.chassis.load.gcra import Buckets, Rate
from services.chassis.sentence import Sentence
from services.chassis.timing.deadlines import Clock


class WrongKeyLimiter:
    def __init__(self, wrong_keys_per_minute: int, addresses: Addresses, clock: Clock) -> None:
        """Takes the limit; 0 disables it."""
        self._rate = Rate(wrong_keys_per_minute, wrong_keys_per_minute) if wrong_keys_per_minute else None
        self._addresses = addresses
        self._buckets = Buckets(clock)

    def count(self, scope: HttpScope) -> None:
        """Counts a wrong key. Raises TOO_MANY_WRONG_KEYS."""
        if self._rate is None:
            return
        network = self._addresses.network_of(scope)
        if network is None:
            return
        wait_ns = self._buckets.charge(network, self._rate)
        if wait_ns:
            raise LegatoError(Reason.TOO_MANY_WRONG_KEYS, Sentence("wrong_keys"), retry_after_s=wait_ns / 1e9)

    def rates(self, scope: HttpScope) -> Headers:
        """Returns the rest of an address's limit, in the form of a key's rate headers."""
        if self._rate is None:
            return []
        network = self._addresses.network_of(scope)
        ahead_ns = 0 if network is None else self._buckets.ahead_ns(network, self._buckets.now_ns())
        return rate_headers(
            AdmitResponse(
                limit_requests=self._rate.per_minute,
                remaining_requests=self._rate.remaining(ahead_ns),
                reset_requests_ms=-(-ahead_ns // 1_000_000),
            )
        )
