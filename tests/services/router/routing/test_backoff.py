"""The time that a refusing server asks for, and the chats that try it meanwhile."""

import pytest

from services.router.routing.saturation import ACCEPTED_AFTER_S, LONGEST_BACKOFF_S, Backoff
from tests.support.fakes import FakeClock


@pytest.fixture
def backoff(clock: FakeClock) -> Backoff:
    return Backoff(clock)


def test_time_is_over_when_the_server_said(clock: FakeClock, backoff: Backoff) -> None:
    backoff.refused(7, running=0)
    assert backoff.left_s == 7
    clock.advance(7)
    assert backoff.left_s == 0
    assert backoff.send(running=0) is None


def test_time_is_a_minute_at_most(backoff: Backoff) -> None:
    backoff.refused(86_400, running=0)
    assert backoff.left_s == LONGEST_BACKOFF_S


def test_one_at_a_time_may_try_it_meanwhile(backoff: Backoff) -> None:
    backoff.refused(30, running=0)
    probe_id = backoff.send(running=0)
    assert probe_id is not None
    assert not backoff.has_room(running=1)
    backoff.over(probe_id)
    assert backoff.has_room(running=0)


def test_probe_that_is_answered_ends_it_for_everybody(backoff: Backoff) -> None:
    backoff.refused(30, running=0)
    backoff.accepted(backoff.send(running=0))
    assert backoff.left_s == 0
    assert backoff.has_room(running=1000)


def test_probe_that_is_not_refused_at_once_was_accepted_however_long_it_thinks(
    clock: FakeClock, backoff: Backoff
) -> None:
    backoff.refused(30, running=0)
    backoff.send(running=0)
    clock.advance(ACCEPTED_AFTER_S)
    assert backoff.has_room(running=1000)


def test_probe_that_is_refused_leaves_room_for_the_next(backoff: Backoff) -> None:
    backoff.refused(30, running=0)
    backoff.over(backoff.send(running=0))
    backoff.refused(30, running=0)
    assert backoff.send(running=0) is not None


def test_as_many_as_ran_when_one_more_was_refused_may_run_meanwhile(backoff: Backoff) -> None:
    backoff.refused(30, running=16)
    assert backoff.send(running=15) is None
    assert backoff.send(running=16) is not None
    assert not backoff.has_room(running=16)
    # Those were too many as well.
    backoff.refused(30, running=10)
    assert not backoff.has_room(running=12)


def test_chat_that_is_no_probe_says_nothing_about_one(backoff: Backoff) -> None:
    backoff.refused(30, running=2)
    probe_id = backoff.send(running=2)
    backoff.accepted(None)
    backoff.over(None)
    assert probe_id is not None
    assert not backoff.has_room(running=2)
