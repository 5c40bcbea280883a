"""A budget that accounts share."""

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.fair_budget import RETRY_AFTER_S, BudgetShare, FairBudget

CAPACITY = 900


def hold(budget: FairBudget, account_id: str) -> BudgetShare | None:
    try:
        return budget.hold(account_id, 1)
    except LegatoError:
        return None


def fill(budget: FairBudget, account_id: str) -> list[BudgetShare]:
    """Takes all that an account can have, one by one."""
    holdings: list[BudgetShare] = []
    while (holding := hold(budget, account_id)) is not None:
        holdings.append(holding)
    return holdings


def test_one_account_alone_may_have_two_thirds() -> None:
    budget = FairBudget("Memory", CAPACITY)
    assert len(fill(budget, "greedy")) == 600
    assert budget.refused == 1
    with pytest.raises(LegatoError, match="Memory is not available to this account") as refused:
        budget.hold("greedy", 1)
    assert (refused.value.reason, refused.value.retry_after_s) == (Reason.SATURATED, RETRY_AFTER_S)


def test_next_account_finds_some_however_many_have_taken_all_they_can() -> None:
    budget = FairBudget("Memory", CAPACITY)
    taken = [len(fill(budget, f"account {number}")) for number in range(4)]
    assert taken == [600, 200, 66, 22]
    with pytest.raises(LegatoError):
        budget.hold("account 0", 1)
    budget.hold("another", 1)
    assert budget.used < CAPACITY


def test_accounts_that_take_in_turn_get_the_same() -> None:
    budget = FairBudget("Memory", CAPACITY)
    held = {"one": 0, "two": 0, "three": 0}
    for _ in range(CAPACITY):
        for account_id in held:
            held[account_id] += hold(budget, account_id) is not None
    assert max(held.values()) - min(held.values()) <= 1
    assert budget.used > 0.8 * CAPACITY


def test_what_is_released_can_be_had_again() -> None:
    budget = FairBudget("Memory", CAPACITY)
    holdings = fill(budget, "greedy")
    for holding in holdings:
        holding.release()
        holding.release()
    assert budget.used == 0
    assert len(fill(budget, "another")) == len(holdings)


def test_holding_grows_and_keeps_what_it_had_if_it_cannot() -> None:
    budget = FairBudget("Memory", CAPACITY)
    other = budget.hold("account", 1)
    with budget.hold("account") as holding:
        for amount in (100, 50, 599):
            holding.grow_to(amount)
        with pytest.raises(LegatoError):
            holding.grow_to(600)
        assert holding.charged == 599
    assert budget.used == other.charged == 1


def test_first_of_an_account_needs_only_to_fit() -> None:
    budget = FairBudget("Memory", CAPACITY)
    budget.hold("greedy", 600)
    with budget.hold("another", 100) as first:
        first.grow_to(300)
        with pytest.raises(LegatoError):
            first.grow_to(301)
    # Even where there is but one place.
    with FairBudget("A place", 1).hold("anybody", 1) as only:
        assert only.charged == 1


def test_small_holdings_are_free_and_never_refused() -> None:
    budget = FairBudget("Memory", CAPACITY, uncharged=10)
    fill_all = [budget.hold("greedy", 110) for _ in range(6)]
    assert budget.used == 600
    holding = budget.hold("greedy", 10)
    holding.check(10)
    assert holding.charged == 0
    with pytest.raises(LegatoError):
        holding.check(11)
    assert budget.used == 600
    assert len(fill_all) == 6


def test_what_others_may_need_does_not_stay() -> None:
    budget = FairBudget("memory", 100, uncharged=5)
    large, small = budget.hold("acct_1", 50), budget.hold("acct_1", 5)
    assert [large.may_stay, small.may_stay] == [True, True]
    others = budget.hold("acct_2", 12)
    assert [large.may_stay, small.may_stay] == [False, True]
    others.release()
    assert [large.may_stay, small.may_stay] == [True, True]
