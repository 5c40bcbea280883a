"""What is left of a key's rates, and the six headers that tell it, in OpenAI's form."""

from collections.abc import Callable

from edge.wire.asgi import Headers
from protos.metering.v1 import metering_pb2 as pb
from services.chassis.timing.clock import Clock

MINUTE_MS = 60_000
# Where no limit on tokens is set, what bounds them is the rate of requests, each with at most this many.
LARGEST_REQUEST_TOKENS = 1_000_000


class Admission:
    """One request that the key's rates let in, until it is known what it used. Each word about that counts once."""

    def __init__(
        self, asked: pb.AdmitRequest, rate: pb.AdmitResponse, correct: Callable[[pb.CorrectRequest], None]
    ) -> None:
        """`correct` sends a correction and waits for nothing."""
        self._asked = asked
        self._rate = rate
        self._correct = correct
        self._taken_tokens = asked.tokens
        self._is_used = False
        self._is_given_back = False

    @property
    def headers(self) -> Headers:
        """With what was given back, as far as that is known by now."""
        if not (self._is_used or self._is_given_back):
            return rate_headers(self._rate)
        tokens = self._asked.tokens - self._taken_tokens
        return rate_headers(_given_back(self._rate, int(self._is_given_back), tokens))

    def use(self, tokens: int) -> None:
        """So many tokens were used in all: the difference to what was taken is taken, or given back."""
        if self._is_used or self._is_given_back:
            return
        self._is_used = True
        if self._rate.limit_tokens and tokens != self._taken_tokens:
            self._correct(self._correction(tokens=tokens - self._taken_tokens))
            self._taken_tokens = tokens

    def give_back(self) -> None:
        """The request was refused after all, so it takes nothing."""
        if not self._is_given_back:
            self._correct(self.withdraw())

    def is_short_of(self, tokens: int) -> bool:
        """Whether more tokens are to be taken than were, from a rate that limits them."""
        return bool(self._rate.limit_tokens) and tokens > self._taken_tokens and not self._is_given_back

    def withdraw(self) -> pb.CorrectRequest:
        """Takes nothing any more: what is to be told about that."""
        correction = self._correction(tokens=-self._taken_tokens, refused=True)
        self._is_given_back = True
        self._taken_tokens = 0
        return correction

    def renew(self, asked: pb.AdmitRequest, rate: pb.AdmitResponse) -> None:
        """Another was let in for the same request, in place of what was withdrawn."""
        self._asked = asked
        self._rate = rate
        self._taken_tokens = asked.tokens
        self._is_given_back = False

    def _correction(self, tokens: int, *, refused: bool = False) -> pb.CorrectRequest:
        asked = self._asked
        return pb.CorrectRequest(
            key_id=asked.key_id,
            account_id=asked.account_id,
            requests_per_minute=asked.requests_per_minute if asked.HasField("requests_per_minute") else None,
            tokens_per_minute=asked.tokens_per_minute if asked.HasField("tokens_per_minute") else None,
            refused=refused,
            tokens=tokens,
        )


class LastRates:
    """What was last told of keys' rates, for answers that are given without asking for them."""

    def __init__(self, clock: Clock, most: int = 10_000) -> None:
        self._clock = clock
        self._most = most
        self._by_key_id: dict[str, tuple[pb.AdmitResponse, float]] = {}

    def note(self, key_id: str, rate: pb.AdmitResponse) -> None:
        self._by_key_id[key_id] = rate, self._clock.elapsed_s()
        if len(self._by_key_id) > self._most:
            del self._by_key_id[next(iter(self._by_key_id))]

    def recall(self, key_id: str) -> pb.AdmitResponse | None:
        """With what has come back since."""
        if (told := self._by_key_id.get(key_id)) is None:
            return None
        rate, told_at_s = told
        return _refilled(rate, int((self._clock.elapsed_s() - told_at_s) * 1000))


def _refilled(rate: pb.AdmitResponse, elapsed_ms: int) -> pb.AdmitResponse:
    # What is left to refill says how much a whole bucket holds: a rate of requests is never overdrawn.
    refilled_ms = min(elapsed_ms, rate.reset_requests_ms)
    refilled = pb.AdmitResponse(
        limit_requests=rate.limit_requests,
        remaining_requests=rate.remaining_requests + refilled_ms * rate.limit_requests // MINUTE_MS,
        reset_requests_ms=rate.reset_requests_ms - refilled_ms,
    )
    if rate.limit_tokens:
        _put_tokens(refilled, rate.limit_tokens, rate.reset_tokens_ms - elapsed_ms)
    return refilled


def _given_back(rate: pb.AdmitResponse, requests: int, tokens: int) -> pb.AdmitResponse:
    """Tokens below zero were taken on top."""
    given_back = pb.AdmitResponse(
        limit_requests=rate.limit_requests,
        remaining_requests=rate.remaining_requests + requests,
        reset_requests_ms=max(0, rate.reset_requests_ms - requests * MINUTE_MS // rate.limit_requests),
    )
    if rate.limit_tokens:
        reset_ms = rate.reset_tokens_ms - tokens * MINUTE_MS // rate.limit_tokens
        _put_tokens(given_back, rate.limit_tokens, reset_ms)
    return given_back


def _put_tokens(rate: pb.AdmitResponse, limit_tokens: int, reset_ms: int) -> None:
    """A rate of tokens may be overdrawn; but it holds a minute's worth, so when it is whole says what is left."""
    rate.limit_tokens = limit_tokens
    rate.reset_tokens_ms = max(0, reset_ms)
    rate.remaining_tokens = max(0, limit_tokens - -(-rate.reset_tokens_ms * limit_tokens // MINUTE_MS))


def rate_headers(rate: pb.AdmitResponse) -> Headers:
    if rate.limit_tokens:
        tokens = rate.limit_tokens, rate.remaining_tokens, rate.reset_tokens_ms
    else:
        limit_tokens = rate.limit_requests * LARGEST_REQUEST_TOKENS
        tokens = limit_tokens, rate.remaining_requests * LARGEST_REQUEST_TOKENS, rate.reset_requests_ms
    return [
        (b"x-ratelimit-limit-requests", b"%d" % rate.limit_requests),
        (b"x-ratelimit-remaining-requests", b"%d" % rate.remaining_requests),
        (b"x-ratelimit-reset-requests", duration(rate.reset_requests_ms)),
        (b"x-ratelimit-limit-tokens", b"%d" % tokens[0]),
        (b"x-ratelimit-remaining-tokens", b"%d" % tokens[1]),
        (b"x-ratelimit-reset-tokens", duration(tokens[2])),
    ]


def duration(milliseconds: int) -> bytes:
    """12ms, 1.5s, 6m0s."""
    if milliseconds < 1000:
        return b"%dms" % milliseconds
    minutes, milliseconds = divmod(milliseconds, 60_000)
    seconds = f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s".encode() if minutes else f"{seconds}s".encode()
