import pytest

from edge.rates import duration, rate_headers
from protos.metering.v1.metering_pb2 import AdmitResponse


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, b"0ms"), (12, b"12ms"), (1000, b"1s"), (1500, b"1.5s"), (60_000, b"1m0s"), (366_500, b"6m6.5s")],
)
def test_durations_are_written_as_openai_writes_them(milliseconds: int, text: bytes) -> None:
    assert duration(milliseconds) == text


def test_all_six_headers_are_there() -> None:
    names = {name for name, _ in rate_headers(AdmitResponse(limit_requests=3000, remaining_requests=199))}
    assert names == {
        b"x-ratelimit-%b-%b" % (what, of)
        for what in (b"limit", b"remaining", b"reset")
        for of in (b"requests", b"tokens")
    }
