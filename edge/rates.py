"""The six headers that tell a client how much of its rate is left, in OpenAI's form."""

from edge.asgi import Headers
from protos.metering.v1.metering_pb2 import AdmitResponse

# No limit on tokens is set, so what bounds them is the rate of requests, each with at most this many.
LARGEST_REQUEST_TOKENS = 1_000_000


def rate_headers(rate: AdmitResponse) -> Headers:
    reset = duration(rate.reset_requests_ms)
    return [
        (b"x-ratelimit-limit-requests", b"%d" % rate.limit_requests),
        (b"x-ratelimit-remaining-requests", b"%d" % rate.remaining_requests),
        (b"x-ratelimit-reset-requests", reset),
        (b"x-ratelimit-limit-tokens", b"%d" % (rate.limit_requests * LARGEST_REQUEST_TOKENS)),
        (b"x-ratelimit-remaining-tokens", b"%d" % (rate.remaining_requests * LARGEST_REQUEST_TOKENS)),
        (b"x-ratelimit-reset-tokens", reset),
    ]


def duration(milliseconds: int) -> bytes:
    """12ms, 1.5s, 6m0s."""
    if milliseconds < 1000:
        return b"%dms" % milliseconds
    minutes, milliseconds = divmod(milliseconds, 60_000)
    seconds = f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{seconds}s".encode() if minutes else f"{seconds}s".encode()
