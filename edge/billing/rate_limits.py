"""Rate limits of keys: what one request took from them, and what is known of them without asking metering."""

from collections.abc import Callable

from edge.backends.auth import Principal
from edge.wire.responses import rate_headers
from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.http.asgi import Headers
from services.chassis.timing.deadlines import Clock

MINUTE_MS = 60_000


class Admission:
    """One request's admission by the rate limits, until its actual use is known. Each correction is sent once."""

    def __init__(self, asked: pb.AdmitRequest, correct: Callable[[pb.CorrectRequest], None]) -> None:
        """Takes `correct`, which sends without waiting. It is pending: still to be asked for."""
        self.asked = asked
        self._correct = correct
        self._rate: pb.AdmitResponse | None = None
        self._taken_tokens = 0
        self._is_used = False
        self._is_given_back = False
        # A call that asks for it is under way, or its answer was lost.
        self.is_asked_for = False

    @property
    def is_pending(self) -> bool:
        """True until the limits have admitted it."""
        return self._rate is None

    def confirm(self, rate: pb.AdmitResponse) -> None:
        """Ends the waiting: the limits have admitted it."""
        self._rate = rate
        self._taken_tokens = self.asked.tokens

    @property
    def headers(self) -> Headers:
        """The rate headers, including what was given back so far; none while it is pending."""
        if self._rate is None:
            return []
        if not (self._is_used or self._is_given_back):
            return rate_headers(self._rate)
        tokens = self.asked.tokens - self._taken_tokens
        return rate_headers(_given_back(self._rate, int(self._is_given_back), tokens))

    def use(self, tokens: int) -> None:
        """Reports the tokens used in all: takes or gives back the difference to what was taken."""
        if self._rate is None or self._is_used or self._is_given_back:
            return
        self._is_used = True
        if self._rate.limit_tokens and tokens != self._taken_tokens:
            self._correct(self._correction(tokens))

    def give_back(self) -> None:
        """Gives back all that a refused request has taken."""
        if not (self.is_pending or self._is_given_back):
            self._is_given_back = True
            self._correct(self._correction(0, refused=True))

    def is_short_of(self, tokens: int) -> bool:
        """Returns whether a token limit applies and more tokens are needed than were taken."""
        return self._rate is not None and bool(self._rate.limit_tokens) and tokens > self._taken_tokens

    def withdraw(self) -> pb.CorrectRequest:
        """Makes it pending again, and returns the correction to send, which gives back all that was taken."""
        self._rate = None
        return self._correction(0, refused=True)

    def _correction(self, tokens: int, *, refused: bool = False) -> pb.CorrectRequest:
        """Returns what corrects the tokens taken to these; a refused request is given back itself, too."""
        asked, taken_tokens = self.asked, self._taken_tokens
        self._taken_tokens = tokens
        return pb.CorrectRequest(
            key_id=asked.key_id,
            account_id=asked.account_id,
            requests_per_minute=asked.requests_per_minute if asked.HasField("requests_per_minute") else None,
            tokens_per_minute=asked.tokens_per_minute if asked.HasField("tokens_per_minute") else None,
            refused=refused,
            tokens=tokens - taken_tokens,
        )


class LastRates:
    """A cache of the last known rate limits of keys, for answers given without asking for them."""

    def __init__(self, clock: Clock, most: int = 10_000) -> None:
        self._clock = clock
        self._most = most
        self._by_key_id: dict[str, tuple[pb.AdmitResponse, float]] = {}

    def record(self, key_id: str, rate: pb.AdmitResponse) -> None:
        self._by_key_id[key_id] = rate, self._clock.elapsed_s()
        if len(self._by_key_id) > self._most:
            del self._by_key_id[next(iter(self._by_key_id))]

    def recall(self, key_id: str) -> pb.AdmitResponse | None:
        """Returns the limits, refilled since then."""
        if (known := self._by_key_id.get(key_id)) is None:
            return None
        rate, known_at_s = known
        return _refilled(rate, int((self._clock.elapsed_s() - known_at_s) * 1000))


def _refilled(rate: pb.AdmitResponse, elapsed_ms: int) -> pb.AdmitResponse:
    # The time to refill says how much a full bucket holds: a request limit is never overdrawn.
    refilled_ms = min(elapsed_ms, rate.reset_requests_ms)
    return _changed(rate, refilled_ms * rate.limit_requests // MINUTE_MS, refilled_ms, elapsed_ms)


def _given_back(rate: pb.AdmitResponse, requests: int, tokens: int) -> pb.AdmitResponse:
    """Adds what was given back; negative tokens were taken."""
    tokens_ms = tokens * MINUTE_MS // rate.limit_tokens if rate.limit_tokens else 0
    return _changed(rate, requests, requests * MINUTE_MS // rate.limit_requests, tokens_ms)


def _changed(rate: pb.AdmitResponse, more_requests: int, requests_ms: int, tokens_ms: int) -> pb.AdmitResponse:
    """Adds requests, and subtracts times until both limits are full again."""
    changed = pb.AdmitResponse(
        limit_requests=rate.limit_requests,
        remaining_requests=rate.remaining_requests + more_requests,
        reset_requests_ms=max(0, rate.reset_requests_ms - requests_ms),
    )
    if limit_tokens := rate.limit_tokens:
        # A token limit may be overdrawn, but holds a minute's worth, so its reset gives the rest.
        changed.limit_tokens = limit_tokens
        changed.reset_tokens_ms = max(0, rate.reset_tokens_ms - tokens_ms)
        changed.remaining_tokens = max(0, limit_tokens - -(-changed.reset_tokens_ms * limit_tokens // MINUTE_MS))
    return changed


def admit_request(principal: Principal, tokens: int = 0, *, only_looks: bool = False) -> pb.AdmitRequest:
    return pb.AdmitRequest(
        key_id=principal.key_id,
        account_id=principal.account_id,
        requests_per_minute=principal.requests_per_minute,
        tokens_per_minute=principal.tokens_per_minute,
        tokens=tokens,
        only_looks=only_looks,
    )
