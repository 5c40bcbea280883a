"""The time of servers whose clock differs from ours."""

import pytest

from services.router.providers.authentication.server_clock import ServerClock

# 2026-11-19 12:00:00 UTC.
NOON_S = 1_795_089_600.0
NOON = [(b"date", b"Thu, 19 Nov 2026 12:00:00 GMT")]


def test_servers_time_is_taken_over_if_it_is_another() -> None:
    clock = ServerClock(lambda: NOON_S - 3600)
    assert clock.learn(NOON)
    assert clock.now_s() == NOON_S
    assert not clock.learn(NOON)


def test_seconds_on_the_way_are_no_other_time() -> None:
    clock = ServerClock(lambda: NOON_S + 20)
    assert not clock.learn(NOON)
    assert clock.now_s() == NOON_S + 20


@pytest.mark.parametrize("date", [b"", b"yesterday", b"Thu, 99 Nov 2026 12:00:00 GMT", b"\xff"])
def test_what_is_no_date_tells_nothing(date: bytes) -> None:
    assert not ServerClock(lambda: NOON_S).learn([(b"date", date)])
    assert not ServerClock(lambda: NOON_S).learn([])
