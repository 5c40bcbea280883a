import pytest

from edge.wire.responses import duration, error_headers, rate_headers
from legato_protos.metering.v1 import metering_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, b"0ms"), (12, b"12ms"), (1000, b"1s"), (1500, b"1.5s"), (60_000, b"1m0s"), (366_500, b"6m6.5s")],
)
def test_durations_are_written_as_openai_writes_them(milliseconds: int, text: bytes) -> None:
    assert duration(milliseconds) == text


def headers_of(rate: pb.AdmitResponse) -> dict[str, str]:
    """Drops what all their names have in common."""
    return {name.decode().removeprefix("x-ratelimit-"): value.decode() for name, value in rate_headers(rate)}


def test_requests_and_tokens_are_told_each_by_its_own_rate() -> None:
    rate = pb.AdmitResponse(
        limit_requests=3000, remaining_requests=199, reset_requests_ms=20,
        limit_tokens=60_000, remaining_tokens=58_930, reset_tokens_ms=1_070,
    )  # fmt: skip
    assert headers_of(rate) == {
        "limit-requests": "3000", "remaining-requests": "199", "reset-requests": "20ms",
        "limit-tokens": "60000", "remaining-tokens": "58930", "reset-tokens": "1.07s",
    }  # fmt: skip


def test_without_a_limit_tokens_are_told_by_what_requests_can_carry() -> None:
    rate = pb.AdmitResponse(limit_requests=3000, remaining_requests=199, reset_requests_ms=20)
    assert headers_of(rate) == {
        "limit-requests": "3000", "remaining-requests": "199", "reset-requests": "20ms",
        "limit-tokens": "3000000000", "remaining-tokens": "199000000", "reset-tokens": "20ms",
    }  # fmt: skip


def test_refusal_by_tokens_tells_that_requests_are_left() -> None:
    figures = {
        "limit_requests": 3000, "remaining_requests": 199, "reset_requests_ms": 20,
        "limit_tokens": 1000, "remaining_tokens": 0, "reset_tokens_ms": 60_000,
        "figure_of_a_newer_metering": 1,
    }  # fmt: skip
    refusal = LegatoError(
        Reason.RATE_LIMITED, Sentence.verbatim("Too many tokens."), retry_after_s=6.001, figures=figures
    )
    headers = dict(error_headers(refusal))
    assert headers[b"retry-after"] == b"7"
    assert headers[b"x-ratelimit-remaining-requests"] == b"199"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"0"
    assert headers[b"x-ratelimit-reset-tokens"] == b"1m0s"
