"""The time that a refusing server asks for: whom it concerns, and the chats that try it meanwhile."""

import itertools

import pytest

from services.router.models.backoff import (
    ACCEPTED_AFTER_S,
    LEAST_PROBES,
    LONGEST_BACKOFF_S,
    MOST_PROBES,
    SEVERAL_ACCOUNTS,
    ModelBackoff,
)
from tests.support.fakes import FakeClock

MANY = 20


@pytest.fixture
def backoff(clock: FakeClock) -> ModelBackoff:
    return ModelBackoff(clock)


def refuse(
    backoff: ModelBackoff, key_id: str = "key", *, account_id: str = "", times: int = 1, running: int = 0
) -> None:
    for _ in range(times):
        backoff.refused(30, key_id, account_id or key_id, running, running)


def refuse_several(backoff: ModelBackoff, accounts: int = MANY, *, running: int = 0) -> None:
    for number in range(accounts):
        backoff.refused(30, f"key {number}", f"account {number}", running, 0)


def send(backoff: ModelBackoff, key_id: str = "key", *, running: int = 0) -> object | None:
    assert backoff.has_room(key_id, running, running)
    return backoff.send(key_id, running, running)


def count_room(backoff: ModelBackoff, key_id: str = "key") -> int:
    """Returns how many probes are let through at once."""
    for count in itertools.count():
        if count > MOST_PROBES or not backoff.has_room(key_id, 1000, 1000):
            return count
        backoff.send(key_id, 1000, 1000)
    raise AssertionError


def test_time_is_over_when_the_server_said(clock: FakeClock, backoff: ModelBackoff) -> None:
    backoff.refused(7, "key", "account", 0, 0)
    assert backoff.left_s("key") == 7
    clock.advance(7)
    assert backoff.left_s("key") == 0
    assert send(backoff) is None


def test_time_is_a_minute_at_most(backoff: ModelBackoff) -> None:
    backoff.refused(86_400, "key", "account", 0, 0)
    assert backoff.left_s("key") == LONGEST_BACKOFF_S


def test_refusal_concerns_only_the_key_that_met_it(backoff: ModelBackoff) -> None:
    refuse(backoff, times=MANY)
    assert backoff.left_s("key") > 0
    assert backoff.left_s("another") == 0
    assert send(backoff, "another", running=1000) is None


def test_refusals_of_several_keys_of_one_account_concern_no_other_account(backoff: ModelBackoff) -> None:
    for number in range(MANY):
        refuse(backoff, f"key {number}", account_id="account", times=MANY)
    assert backoff.left_s("another") == 0


def test_refusals_of_several_accounts_in_a_row_concern_everybody(backoff: ModelBackoff) -> None:
    refuse_several(backoff, SEVERAL_ACCOUNTS - 1)
    assert backoff.left_s("another") == 0
    refuse_several(backoff, SEVERAL_ACCOUNTS)
    assert backoff.left_s("another") == 30


def test_refusals_between_which_a_chat_was_accepted_are_not_in_a_row(backoff: ModelBackoff) -> None:
    for number in range(MANY):
        refuse(backoff, f"key {number}")
        backoff.accepted("another")
    assert backoff.left_s("another") == 0


def test_refusals_whose_time_is_over_are_not_in_a_row(clock: FakeClock, backoff: ModelBackoff) -> None:
    for number in range(MANY):
        refuse(backoff, f"key {number}")
        clock.advance(30)
    assert backoff.left_s("another") == 0


def test_a_single_refusal_leaves_room_for_a_burst(backoff: ModelBackoff) -> None:
    refuse(backoff)
    assert count_room(backoff) == MOST_PROBES


def test_the_more_refusals_come_in_a_row_the_fewer_try_it_at_once(backoff: ModelBackoff) -> None:
    refuse(backoff, times=3)
    assert count_room(backoff) == MOST_PROBES // 4
    refuse(backoff, times=MANY)
    refuse(backoff, "second", times=MANY)
    assert count_room(backoff, "second") == LEAST_PROBES > 1
    refuse_several(backoff)
    assert count_room(backoff, "another") == LEAST_PROBES


def test_any_accepted_chat_ends_it_for_its_key_and_for_everybody(backoff: ModelBackoff) -> None:
    refuse_several(backoff)
    refuse(backoff, times=MANY)
    backoff.accepted("key")
    assert backoff.left_s("key") == backoff.left_s("another") == 0
    assert backoff.has_room("key", 1000, 1000)
    # It says nothing about a key that the server refuses for what it sends.
    assert backoff.left_s("key 0") > 0


def test_probe_that_is_not_refused_at_once_was_accepted_however_long_it_thinks(
    clock: FakeClock, backoff: ModelBackoff
) -> None:
    refuse_several(backoff)
    refuse(backoff, times=MANY)
    assert send(backoff) is not None
    clock.advance(ACCEPTED_AFTER_S)
    assert backoff.left_s("key") == backoff.left_s("another") == 0
    # The refusals before it are no longer in a row with those that follow.
    refuse(backoff, "key 0")
    assert backoff.left_s("another") == 0


def test_probe_that_is_over_leaves_room_for_the_next(backoff: ModelBackoff) -> None:
    refuse(backoff, times=MANY)
    refuse_several(backoff)
    probes = [send(backoff, running=number) for number in range(LEAST_PROBES)]
    assert not backoff.has_room("key", LEAST_PROBES, LEAST_PROBES)
    assert probes[0] is not None
    backoff.over("key", probes[0])
    assert backoff.has_room("key", 1, 1)


@pytest.mark.parametrize("is_for_all", [False, True])
def test_as_many_as_ran_when_one_more_was_refused_may_run_meanwhile(backoff: ModelBackoff, is_for_all: bool) -> None:
    def refuse_at(running: int) -> None:
        if is_for_all:
            refuse_several(backoff, running=running)
        else:
            refuse(backoff, times=MANY, running=running)

    refuse_at(16)
    assert send(backoff, running=15) is None
    for _ in range(LEAST_PROBES):
        assert send(backoff, running=16) is not None
    assert not backoff.has_room("key", 16, 16)
    # Those were too many as well.
    refuse_at(10)
    assert not backoff.has_room("key", 12, 12)


def test_keys_whose_time_is_over_are_forgotten(clock: FakeClock, backoff: ModelBackoff) -> None:
    for _ in range(3):
        refuse_several(backoff, 100)
        clock.advance(LONGEST_BACKOFF_S)
    refuse(backoff)
    assert list(backoff._by_key) == ["key"]
    assert list(backoff._refused_accounts) == ["key"]
