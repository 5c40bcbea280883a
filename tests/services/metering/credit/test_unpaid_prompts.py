import pytest

from services.metering.credit.unpaid_prompts import MOST_ACCOUNTS, MOST_KEPT, UnpaidPrompts
from tests.support.fakes import FakeClock

ANN, BOB = "acct_ann", "acct_bob"


@pytest.fixture
def unpaid(clock: FakeClock) -> UnpaidPrompts:
    return UnpaidPrompts(3, 30_000, 600, clock)


def leave(unpaid: UnpaidPrompts, times: int, tokens: int = 200_000, account: str = ANN) -> None:
    for number in range(times):
        unpaid.record(account, f"{account}-{tokens}-{number}", tokens)


def test_third_big_prompt_makes_it_a_habit_of_that_account_alone(unpaid: UnpaidPrompts) -> None:
    leave(unpaid, 2)
    assert not unpaid.is_over_limit(ANN)
    leave(unpaid, 3)
    assert unpaid.is_over_limit(ANN)
    assert not unpaid.is_over_limit(BOB)


def test_short_prompts_are_no_habit_however_many(unpaid: UnpaidPrompts) -> None:
    leave(unpaid, 10 * MOST_KEPT, tokens=10)
    assert not unpaid.is_over_limit(ANN)


def test_many_prompts_of_some_size_are_a_habit(unpaid: UnpaidPrompts) -> None:
    leave(unpaid, 29, tokens=1_000)
    assert not unpaid.is_over_limit(ANN)
    leave(unpaid, 30, tokens=1_000)
    assert unpaid.is_over_limit(ANN)


def test_now_and_then_is_no_habit(unpaid: UnpaidPrompts, clock: FakeClock) -> None:
    for number in range(20):
        unpaid.record(ANN, str(number), 200_000)
        assert not unpaid.is_over_limit(ANN)
        clock.advance(301)


def test_habit_is_forgiven_when_its_time_is_over(unpaid: UnpaidPrompts, clock: FakeClock) -> None:
    leave(unpaid, 3)
    clock.advance(599)
    assert unpaid.is_over_limit(ANN)
    clock.advance(1)
    assert not unpaid.is_over_limit(ANN)


def test_prompt_that_is_told_of_twice_counts_once(unpaid: UnpaidPrompts) -> None:
    for _ in range(5):
        unpaid.record(ANN, "the same", 200_000)
    assert not unpaid.is_over_limit(ANN)


def test_a_limit_of_no_prompts_is_never_exceeded(clock: FakeClock) -> None:
    unpaid = UnpaidPrompts(0, 0, 600, clock)
    leave(unpaid, 100)
    assert not unpaid.is_over_limit(ANN)


def test_only_so_many_accounts_are_remembered(unpaid: UnpaidPrompts) -> None:
    leave(unpaid, 3)
    for number in range(MOST_ACCOUNTS):
        leave(unpaid, 3, account=str(number))
    assert not unpaid.is_over_limit(ANN)
    assert unpaid.is_over_limit("0")
