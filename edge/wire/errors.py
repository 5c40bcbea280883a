"""Renders an error in OpenAI's shape. No other shape leaves the edge."""

import math

import msgspec

from edge.wire.asgi import Headers
from edge.wire.rate_headers import rate_headers
from protos.metering.v1.metering_pb2 import AdmitResponse
from services.chassis.errors import LegatoError, Reason

# The official clients retry 408, 409, 429 and 5xx; for these a retry cannot help.
_NOT_WORTH_A_RETRY = frozenset(
    {
        Reason.CREDITS_EXHAUSTED,
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


def error_headers(error: LegatoError) -> Headers:
    headers: Headers = []
    if error.retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))))
        headers.append((b"retry-after-ms", b"%d" % max(1, math.ceil(error.retry_after_s * 1000))))
    if error.reason is Reason.RATE_LIMITED:
        # Both rate limits are reported, also the one that was not hit: nothing was taken from either.
        known = AdmitResponse.DESCRIPTOR.fields_by_name
        headers += rate_headers(AdmitResponse(**{name: error.figures.get(name, 0) for name in known}))
    if error.original_request_id is not None:
        headers.append((b"x-original-request-id", error.original_request_id.encode()))
    if error.reason in _NOT_WORTH_A_RETRY:
        headers.append((b"x-should-retry", b"false"))
    return headers
