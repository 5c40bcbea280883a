from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from services.router.providers.http.retry_after import read_retry_after


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
