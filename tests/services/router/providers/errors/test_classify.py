"""Meanings of statuses and words beside them."""

import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from services.router.prompts.fitting import Figures
from services.router.providers.base import Failure
from services.router.providers.errors.classify import (
    ErrorPattern,
    ErrorPatterns,
    read_failure,
    read_retry_after,
)

SIGNS = ErrorPatterns(
    context=ErrorPattern(frozenset(("length",)), re.compile("too long")),
    account=ErrorPattern(frozenset(("quota",)), re.compile("^no credit")),
)


@pytest.mark.parametrize(
    ("status", "said", "failure"),
    [
        (400, b"", Failure.REFUSED),
        (400, b"Much TOO LONG", Failure.CONTEXT),
        (400, b'{"error":{"code":"LENGTH"}}', Failure.CONTEXT),
        (400, b"No credit", Failure.PROVIDER),
        (400, b'{"error":{"type":"Quota"}}', Failure.PROVIDER),
        # What the client has said is not what the provider says.
        (400, b'{"error":{"message":"There is no property \'no credit\'","param":"quota"}}', Failure.REFUSED),
        (422, b'{"detail":[{"input":"no credit, too long","type":"quota"}]}', Failure.REFUSED),
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
    error = read_failure(status, said, SIGNS, {})
    assert (error.failure, error.http_status, error.what) == (failure, status, f"answered with status {status}")


@pytest.mark.parametrize(
    ("headers", "said", "seconds"),
    [
        ({}, b"", None),
        ({"retry-after": "7"}, b"", 7),
        ({"retry-after": "7"}, b'{"error":{"details":[{"retryDelay":"13s"}]}}', 7),
        ({}, b'{"error":{"details":[{"retryDelay":"13s"}]}}', 13),
        # Who says when to come back is not waiting for money.
        ({}, b'{"error":{"message":"no credit","details":[{"retryDelay":"13s"}]}}', 13),
    ],
)
def test_time_to_come_back_is_in_the_header_or_in_the_body(
    headers: dict[str, str], said: bytes, seconds: float | None
) -> None:
    error = read_failure(429, said, SIGNS, headers)
    assert (error.failure, error.retry_after_s) == (Failure.BUSY, seconds)


@pytest.mark.parametrize(
    ("status", "said", "failure"),
    [(503, b"", Failure.BUSY), (500, b"too long", Failure.CONTEXT), (500, b"", Failure.PROVIDER)],
)
def test_error_in_place_of_an_answer_has_no_status_to_report(status: int, said: bytes, failure: Failure) -> None:
    error = read_failure(status, said, SIGNS)
    assert (error.failure, error.http_status) == (failure, None)


@pytest.mark.parametrize(
    ("status", "said", "figures"),
    [
        (400, b"too long: maximum context length is 10", Figures(10)),
        (400, b'{"error":{"code":"length"}}', Figures()),
        (413, b"too long", Figures()),
        # A body that is too large, and what is not about length at all: no shorter answer helps.
        (413, b"maximum context length is 10", None),
        (400, b"maximum context length is 10", None),
    ],
)
def test_figures_are_told_where_a_shorter_answer_may_fit(status: int, said: bytes, figures: Figures | None) -> None:
    assert read_failure(status, said, SIGNS, {}).figures == figures
    assert read_failure(status, said, SIGNS).figures == figures
    assert read_failure(429, said, SIGNS, {}).figures is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "20"}, 20),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "2"}, 2),
        ({"retry-after": "-3"}, 0),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, 0),
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 10000 07:28:00 GMT"}, None),
        ({"retry-after": "Fri, 01 Jan 0001 00:00:00 +2359"}, 0),
        ({"retry-after": ""}, None),
    ],
)
def test_seconds_are_read_in_whatever_way_they_are_given(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_after(headers) == seconds


def test_date_is_read_as_the_time_until_then() -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)
    seconds = read_retry_after({"retry-after": format_datetime(moment, usegmt=True)})
    assert seconds is not None
    # As far as a busy machine may get meanwhile.
    assert 3000 < seconds <= 3600
