"""Renders what responses have in common: rate limits, errors and their headers."""

import math

import msgspec

from legato_protos.metering.v1.metering_pb2 import AdmitResponse
from services.chassis.errors import LegatoError, Reason
from services.chassis.http.answer import Answer
from services.chassis.http.asgi import Headers
from services.chassis.http.request_id import new_request_id

JSON = (b"content-type", b"application/json")
# Without a token limit, tokens are bounded by the request limit, each request having at most this many.
LARGEST_REQUEST_TOKENS = 1_000_000


def rate_headers(rate: AdmitResponse) -> Headers:
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


def reported_rate(error: LegatoError) -> AdmitResponse | None:
    """Returns what is left of the rate limits, if the error tells."""
    if "limit_requests" not in error.figures:
        return None
    known = AdmitResponse.DESCRIPTOR.fields_by_name
    return AdmitResponse(**{name: error.figures.get(name, 0) for name in known})


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
        headers += rate_headers(reported_rate(error) or AdmitResponse())
    if error.original_request_id is not None:
        headers.append((b"x-original-request-id", error.original_request_id.encode()))
    if _is_hopeless(error):
        headers.append((b"x-should-retry", b"false"))
    return headers
