"""What statuses and the words beside them mean."""

import pytest

from services.router.providers.base import Failure
from services.router.providers.failures import Signs, read_failure, read_failure_in_answer

SIGNS = Signs(context=(b"too long",), account=(b"no credit",))


@pytest.mark.parametrize(
    ("status", "said", "failure"),
    [
        (400, b"", Failure.REFUSED),
        (400, b"Much TOO LONG", Failure.CONTEXT),
        (400, b"No credit", Failure.PROVIDER),
        (413, b"", Failure.CONTEXT),
        (422, b"", Failure.REFUSED),
        (401, b"too long", Failure.PROVIDER),
        (429, b"", Failure.BUSY),
        (429, b"no credit", Failure.PROVIDER),
        (498, b"", Failure.BUSY),
        (500, b"", Failure.PROVIDER),
        (503, b"", Failure.BUSY),
        (529, b"", Failure.BUSY),
    ],
)
def test_status_and_words_together_tell_what_happened(status: int, said: bytes, failure: Failure) -> None:
    error = read_failure(status, {}, said, SIGNS)
    assert (error.failure, error.http_status, error.what) == (failure, status, f"answered with status {status}")


@pytest.mark.parametrize(
    ("headers", "said", "seconds"),
    [
        ({}, b"", None),
        ({"retry-after": "7"}, b'{"retryDelay": "13s"}', 7),
        ({}, b'{"details":[{"retryDelay": "13s"}]}', 13),
        ({}, b'{"retryDelay":"0.5s"}', 0.5),
        ({}, b'{"retryDelay":"soon"}', None),
    ],
)
def test_time_to_come_back_is_in_the_header_or_in_the_body(
    headers: dict[str, str], said: bytes, seconds: float | None
) -> None:
    assert read_failure(429, headers, said, SIGNS).retry_after_s == seconds


@pytest.mark.parametrize(
    ("status", "said", "failure"),
    [(503, b"", Failure.BUSY), (500, b"too long", Failure.CONTEXT), (500, b"", Failure.PROVIDER)],
)
def test_error_in_place_of_an_answer_has_no_status_to_report(status: int, said: bytes, failure: Failure) -> None:
    error = read_failure_in_answer(status, said, SIGNS)
    assert (error.failure, error.http_status) == (failure, None)
