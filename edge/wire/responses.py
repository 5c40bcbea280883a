"""Sends responses: the headers that all of them have, and whole responses."""

import math
from collections.abc import Callable

import msgspec

from protos.metering.v1 import metering_pb2 as pb
from protos.metering.v1.metering_pb2 import AdmitResponse
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.answer import Answer
from services.chassis.http.asgi import Headers, Send
from services.chassis.http.request_id import new_request_id
from services.chassis.timing.deadlines import Clock

JSON = (b"content-type", b"application/json")
MINUTE_MS = 60_000
# Without a token limit, tokens are bounded by the request limit, each request having at most this many.
LARGEST_REQUEST_TOKENS = 1_000_000


class Admission:
    """One request that the rate limits admitted, until its actual use is known. Each correction is sent once."""

    def __init__(
        self, asked: pb.AdmitRequest, rate: pb.AdmitResponse | None, correct: Callable[[pb.CorrectRequest], None]
    ) -> None:
        """Takes `correct`, which sends without waiting. Without a `rate` it is pending: still to be asked for."""
        self.asked = asked
        self._rate = rate
        # True until the limits have admitted it.
        self.is_pending = rate is None
        self._correct = correct
        self._taken_tokens = asked.tokens
        self._is_used = False
        self._is_given_back = False
        # A call that asks for it is under way, or its answer was lost.
        self.is_asked_for = False

    def confirm(self, rate: pb.AdmitResponse) -> None:
        """Ends the waiting: the limits have admitted it."""
        self._rate = rate
        self.is_pending = False

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
            self._correct(self._correction(tokens=tokens - self._taken_tokens))
            self._taken_tokens = tokens

    def give_back(self) -> None:
        """Gives back all that a refused request has taken."""
        if not (self.is_pending or self._is_given_back):
            self._correct(self.withdraw())

    def is_short_of(self, tokens: int) -> bool:
        """Returns whether a token limit applies and more tokens are needed than were taken."""
        return (
            self._rate is not None
            and bool(self._rate.limit_tokens)
            and tokens > self._taken_tokens
            and not self._is_given_back
        )

    def withdraw(self) -> pb.CorrectRequest:
        """Marks all as given back and returns the correction to send."""
        correction = self._correction(tokens=-self._taken_tokens, refused=True)
        self._is_given_back = True
        self._taken_tokens = 0
        return correction

    def renew(self, asked: pb.AdmitRequest, rate: pb.AdmitResponse) -> None:
        """Replaces the withdrawn admission by another for the same request."""
        self.asked = asked
        self._rate = rate
        self.is_pending = False
        self._taken_tokens = asked.tokens
        self._is_given_back = False

    def _correction(self, tokens: int, *, refused: bool = False) -> pb.CorrectRequest:
        asked = self.asked
        return pb.CorrectRequest(
            key_id=asked.key_id,
            account_id=asked.account_id,
            requests_per_minute=asked.requests_per_minute if asked.HasField("requests_per_minute") else None,
            tokens_per_minute=asked.tokens_per_minute if asked.HasField("tokens_per_minute") else None,
            refused=refused,
            tokens=tokens,
        )


class LastRates:
    """A cache of the last known rate limits of keys, for answers given without asking for them."""

    def __init__(self, clock: Clock, most: int = 10_000) -> None:
        self._clock = clock
        self._most = most
        self._by_key_id: dict[str, tuple[pb.AdmitResponse, float]] = {}

    def note(self, key_id: str, rate: pb.AdmitResponse) -> None:
        self._by_key_id[key_id] = rate, self._clock.elapsed_s()
        if len(self._by_key_id) > self._most:
            del self._by_key_id[next(iter(self._by_key_id))]

    def recall(self, key_id: str) -> pb.AdmitResponse | None:
        """Returns the limits, refilled since then."""
        if (told := self._by_key_id.get(key_id)) is None:
            return None
        rate, told_at_s = told
        return _refilled(rate, int((self._clock.elapsed_s() - told_at_s) * 1000))


def _refilled(rate: pb.AdmitResponse, elapsed_ms: int) -> pb.AdmitResponse:
    # The time to refill says how much a full bucket holds: a request limit is never overdrawn.
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
    """Adds what was given back; negative tokens were taken."""
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
    """Sets the token limit's fields. It may be overdrawn, but holds a minute's worth, so its reset gives the rest."""
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
    """Renders 12ms, 1.5s, 6m0s."""
    if milliseconds < 1000:
        return b"%dms" % milliseconds
    minutes, milliseconds = divmod(milliseconds, 60_000)
    seconds = f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s".encode() if minutes else f"{seconds}s".encode()


def told_rate(error: LegatoError) -> AdmitResponse | None:
    """Returns what is left of the rate limits, if the error tells."""
    if "limit_requests" not in error.figures:
        return None
    known = AdmitResponse.DESCRIPTOR.fields_by_name
    return AdmitResponse(**{name: error.figures.get(name, 0) for name in known})


async def send_json(send: Send, status: int, body: bytes, headers: Headers) -> None:
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})


def refusal_before_request(error: LegatoError) -> Answer:
    """Renders an error that concerns a connection, or a request that cannot be read."""
    headers = [JSON, (b"x-request-id", new_request_id().encode())]
    return Answer(error.wire.http_status, headers, error_body(error))


# The official clients retry 408, 409, 429 and 5xx; for these a retry cannot help.
_NOT_WORTH_A_RETRY = frozenset(
    {
        Reason.CREDITS_EXHAUSTED,
        Reason.SPEND_LIMIT_SPENT,
        Reason.REQUEST_RESOLVED,
        Reason.REQUEST_REPEATED,
        Reason.IDEMPOTENCY_KEY_REUSED,
        Reason.UPSTREAM_REFUSED,
    }
)


def error_body(error: LegatoError) -> bytes:
    wire = error.wire
    return msgspec.json.encode(
        {"error": {"message": error.message, "type": wire.type, "param": error.param, "code": wire.code}}
    )


# The official clients wait no longer than this before a retry.
_LONGEST_RETRY_DELAY_S = 60


def _is_hopeless(error: LegatoError) -> bool:
    if error.reason is Reason.SPEND_LIMIT_EXCEEDED:
        return error.retry_after_s is not None and error.retry_after_s > _LONGEST_RETRY_DELAY_S
    return error.reason in _NOT_WORTH_A_RETRY


def error_headers(error: LegatoError) -> Headers:
    headers: Headers = []
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
        headers.append((b"retry-after-ms", b"%d" % max(1, math.ceil(error.retry_after_s * 1000))))
    if error.reason is Reason.RATE_LIMITED:
        # Both rate limits are reported, also the one that was not hit: nothing was taken from either.
        headers += rate_headers(told_rate(error) or AdmitResponse())
    if error.original_request_id is not None:
        headers.append((b"x-original-request-id", error.original_request_id.encode()))
    if _is_hopeless(error):
        headers.append((b"x-should-retry", b"false"))
    return headers
