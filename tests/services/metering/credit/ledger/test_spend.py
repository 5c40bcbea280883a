"""Spend limits, one rule by one, and then whatever comes in whichever order."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from services.chassis.errors import LegatoError, Reason
from services.metering.credit.calendar import month_start_us, next_day_us, next_month_us
from services.metering.credit.ledger.spend import (
    WHOLE_ACCOUNT,
    InheritSpendLimits,
    SetSpendLimits,
    SpendLimits,
    spend_id,
)
from services.metering.credit.records import DAY_US, HOUR_US, Checkpoint, Operation, Settle
from services.rules.usage import Usage
from tests.services.metering.credit.ledger.paper import LIFE_US, Ledger
from tests.services.metering.samples import (
    ACCOUNT,
    KEY,
    adjust,
    extend,
    grant,
    request_id,
    reserve,
    settle,
    sweep,
    void,
)

# Noon of the tenth of March 2026, in UTC.
NOON_US = 1_773_144_000_000_000
OTHER_KEY = "key_bbbbbbbbbbbb"


def inherit(key: str = "key_new", replaced_key: str = KEY) -> InheritSpendLimits:
    return InheritSpendLimits(ACCOUNT, key, SpendLimits(), replaced_key_id=replaced_key)


def limit(
    key: str = KEY, *, day: int | None = None, month: int | None = None, total: int | None = None
) -> SetSpendLimits:
    return SetSpendLimits(ACCOUNT, key, SpendLimits(day, month, total))


def ledger_at_noon(balance_nanos: int = 10_000) -> Ledger:
    ledger = Ledger(balance_nanos)
    ledger.now_us = NOON_US
    return ledger


def refusal(ledger: Ledger, operation: Operation[Any]) -> LegatoError:
    with pytest.raises(LegatoError) as refused:
        ledger.apply(operation)
    return refused.value


def spend(ledger: Ledger, number: int, tokens: int, key: str = KEY) -> None:
    """Spends 10 nanos for each token."""
    ledger.apply(reserve(number, output=tokens, key=key))
    ledger.apply(settle(number, completion=tokens))


def test_a_key_spends_its_daily_limit_and_waits_for_midnight() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100))
    spend(ledger, 1, 10)
    refused = refusal(ledger, reserve(2, output=1))
    assert (refused.reason, refused.retry_after_s) == (Reason.SPEND_LIMIT_EXCEEDED, 12 * 3600)
    assert refused.message == "The key's daily spend limit is spent. It starts anew at midnight, in UTC."
    ledger.now_us += 12 * HOUR_US
    spend(ledger, 2, 10)


def test_a_monthly_limit_waits_for_the_first_of_the_next_month() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(month=100))
    spend(ledger, 1, 4)
    ledger.now_us += 5 * DAY_US
    spend(ledger, 2, 6)
    refused = refusal(ledger, reserve(3, output=1))
    assert refused.retry_after_s == (next_month_us(ledger.now_us) - ledger.now_us) / 1e6
    ledger.now_us = next_month_us(ledger.now_us)
    spend(ledger, 3, 10)


def test_a_limit_in_all_is_refused_for_good() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(total=100))
    spend(ledger, 1, 10)
    ledger.now_us += 400 * DAY_US
    refused = refusal(ledger, reserve(2, output=1))
    assert (refused.reason, refused.wire.http_status, refused.retry_after_s) == (Reason.SPEND_LIMIT_SPENT, 402, None)
    ledger.apply(limit(total=110))
    spend(ledger, 2, 1)


@pytest.mark.parametrize("period", ["day", "month"])
def test_a_request_that_costs_more_than_a_whole_day_may_spend_is_not_told_to_wait(period: str) -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=9) if period == "day" else limit(month=9))
    refused = refusal(ledger, reserve(1, output=1))
    assert (refused.reason, refused.retry_after_s) == (Reason.SPEND_LIMIT_SPENT, None)
    adjective = "daily" if period == "day" else "monthly"
    assert refused.message == f"This request costs more than the key's {adjective} spend limit."


def test_the_limit_that_lasts_longest_is_named() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=50, total=50))
    spend(ledger, 1, 5)
    assert refusal(ledger, reserve(2)).reason is Reason.SPEND_LIMIT_SPENT


def test_what_running_requests_hold_counts_and_they_are_waited_for() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(total=100))
    ledger.apply(reserve(1, output=10))
    refused = refusal(ledger, reserve(2, output=1))
    assert (refused.reason, refused.retry_after_s) == (Reason.SPEND_LIMIT_EXCEEDED, 1)
    ledger.apply(void(1))
    assert ledger.apply(reserve(2, output=1)).held_nanos == 10


def test_a_request_holds_no_more_than_a_limit_leaves() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100))
    reserved = ledger.apply(reserve(1, output=1_000))
    assert (reserved.held_nanos, reserved.free_nanos) == (100, 0)
    extended = ledger.apply(extend(1, 101))
    assert (extended.extended, extended.affordable_nanos, extended.balance_nanos) == (False, 100, 100)
    assert extended.spend_limit is not None
    assert str(extended.spend_limit.sentence) == "This request costs more than the key's daily spend limit."
    assert extended.spend_limit.retry_after_s is None


def test_a_hold_grows_within_its_limit() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100))
    ledger.apply(reserve(1, output=2))
    assert ledger.apply(extend(1, 90)).extended
    assert refusal(ledger, reserve(2, output=2, prompt=1)).reason is Reason.SPEND_LIMIT_EXCEEDED


def test_the_limit_of_an_account_applies_to_all_its_keys_together() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(WHOLE_ACCOUNT, day=100))
    spend(ledger, 1, 6)
    assert ledger.apply(reserve(2, output=10, key=OTHER_KEY)).held_nanos == 40
    refused = refusal(ledger, reserve(3, key="key_cccccccccccc"))
    assert refused.message.startswith("The rest of the account's daily spend limit is held")


def test_the_limit_of_one_key_is_none_of_another() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=10))
    spend(ledger, 1, 1)
    spend(ledger, 2, 100, key=OTHER_KEY)


def test_what_was_spent_before_there_was_a_limit_counts() -> None:
    ledger = ledger_at_noon()
    spend(ledger, 1, 6)
    ledger.now_us += DAY_US
    spend(ledger, 2, 3)
    ledger.apply(reserve(3, output=1))
    found = ledger.apply(limit(day=100, month=100, total=100))
    assert (found.day_spent_nanos, found.month_spent_nanos, found.total_spent_nanos, found.held_nanos) == (
        30,
        90,
        90,
        10,
    )


def test_a_charge_beyond_its_hold_stays_within_the_limit_and_the_rest_is_our_loss() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100))
    ledger.apply(reserve(1, output=5))
    settled = ledger.apply(settle(1, completion=30))
    assert (settled.charged_nanos, settled.loss_nanos) == (100, 200)
    assert ledger.entries[-1].reason == "beyond_spend_limit"


def test_a_hold_is_charged_in_full_though_the_limit_was_lowered_meanwhile() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100))
    ledger.apply(reserve(1, output=10))
    ledger.apply(limit(day=20))
    assert ledger.apply(settle(1, completion=10)).charged_nanos == 100


def test_a_request_that_runs_past_midnight_counts_in_the_new_day() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100))
    ledger.apply(reserve(1, output=10))
    ledger.now_us += DAY_US
    ledger.apply(settle(1, completion=10))
    assert refusal(ledger, reserve(2)).reason is Reason.SPEND_LIMIT_EXCEEDED


def test_a_late_charge_counts_in_the_day_of_the_request() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100, total=1_000))
    ledger.apply(reserve(1, output=10))
    ledger.apply(Checkpoint(request_id(1), ACCOUNT, Usage(0, 0, 2)))
    ledger.past_the_deadline().apply(sweep(1))
    ledger.now_us += DAY_US
    ledger.apply(settle(1, completion=8))
    found = ledger.spends[spend_id(ACCOUNT, KEY)]
    assert (found.day_spent_nanos, found.total_spent_nanos) == (0, 80)


@pytest.mark.parametrize("period", ["day", "month"])
def test_a_late_charge_stays_within_the_limit_of_the_day_and_the_month_that_it_counts_in(period: str) -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100) if period == "day" else limit(month=100))
    ledger.apply(reserve(1, output=10))
    ledger.apply(Checkpoint(request_id(1), ACCOUNT, Usage(0, 0, 2)))
    ledger.past_the_deadline().apply(sweep(1))
    # Its credit was released, and another request has used most of it.
    spend(ledger, 2, 7)
    # For two days after the end of a month, its counters still change.
    ledger.now_us = next_day_us(ledger.now_us) if period == "day" else next_month_us(ledger.now_us) + DAY_US
    settled = ledger.apply(settle(1, completion=8))
    assert (settled.charged_nanos, settled.loss_nanos) == (20 + 10, 50)
    assert ledger.entries[-1].reason == "beyond_spend_limit"


def test_a_late_charge_needs_no_room_in_a_day_that_it_does_not_count_in() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100))
    ledger.apply(reserve(1, output=10))
    ledger.apply(Checkpoint(request_id(1), ACCOUNT, Usage(0, 0, 2)))
    ledger.past_the_deadline().apply(sweep(1))
    ledger.now_us += DAY_US
    spend(ledger, 2, 10)
    assert ledger.apply(settle(1, completion=8)).loss_nanos == 0


@pytest.mark.parametrize("position", range(3))
def test_the_limit_of_a_key_cannot_exceed_the_accounts(position: int) -> None:
    def limits(nanos: int) -> SpendLimits:
        return SpendLimits(*(nanos if each == position else None for each in range(3)))

    ledger = ledger_at_noon()
    ledger.apply(SetSpendLimits(ACCOUNT, WHOLE_ACCOUNT, limits(100)))
    assert ledger.refusal_of(SetSpendLimits(ACCOUNT, KEY, limits(101))) is Reason.REQUEST_INVALID
    ledger.apply(SetSpendLimits(ACCOUNT, KEY, limits(100)))


def test_a_lower_limit_of_the_account_lowers_those_of_its_keys() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100, month=500))
    ledger.apply(limit(WHOLE_ACCOUNT, day=40, total=1_000))
    assert ledger.spends[spend_id(ACCOUNT, KEY)].limits == SpendLimits(40, 500, None)


def test_an_account_without_any_limit_keeps_no_record() -> None:
    ledger = ledger_at_noon()
    spend(ledger, 1, 10)
    assert ledger.spends == {}
    assert not ledger.accounts[ACCOUNT].has_spend_limits


def test_limits_that_are_taken_away_no_longer_apply() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(total=10))
    spend(ledger, 1, 1)
    ledger.apply(limit())
    spend(ledger, 2, 10)


def test_months_begin_on_their_first_day() -> None:
    assert next_day_us(NOON_US) == NOON_US + 12 * HOUR_US
    assert month_start_us(NOON_US) == NOON_US - 12 * HOUR_US - 9 * DAY_US
    assert next_month_us(NOON_US) == NOON_US - 12 * HOUR_US + 22 * DAY_US


numbers = st.integers(1, 3)
keys = st.sampled_from([KEY, KEY, OTHER_KEY])
tokens = st.integers(0, 20)
amounts = st.one_of(st.none(), st.integers(0, 300))
operations: st.SearchStrategy[Operation[Any]] = st.one_of(
    st.builds(lambda n, prompt, output, key: reserve(n, prompt=prompt, output=output, key=key), numbers, tokens,
              tokens, keys),
    st.builds(lambda n, total, used: extend(n, total, delivered=Usage(0, 0, used)), numbers, st.integers(0, 400),
              tokens),
    st.builds(lambda n, used: Settle(request_id(n), ACCOUNT, Usage(used, 0, used), "counted", "complete"), numbers,
              tokens),
    st.builds(void, numbers),
    st.builds(sweep, numbers),
    st.builds(lambda amount, n: grant(amount, grant_id=f"grant-{n}"), st.integers(1, 300), numbers),
    st.builds(lambda amount, n: adjust(amount, adjustment_id=f"adjust-{n}"), st.integers(-100, 100), numbers),
    st.builds(lambda key, day, month, total: limit(key, day=day, month=month, total=total),
              st.sampled_from([KEY, OTHER_KEY, WHOLE_ACCOUNT]), amounts, amounts, amounts),
)  # fmt: skip
steps = st.lists(st.tuples(operations, st.sampled_from([0, 1, LIFE_US + 1, DAY_US, 31 * DAY_US])), max_size=30)


@given(st.integers(0, 2_000), steps)
def test_nothing_is_spent_beyond_a_limit_whatever_comes(
    balance_nanos: int, story: list[tuple[Operation[Any], int]]
) -> None:
    ledger = ledger_at_noon(balance_nanos)
    for operation, later_us in story:
        ledger.now_us += later_us
        before = {each: found.at(ledger.now_us) for each, found in ledger.spends.items()}
        with contextlib.suppress(LegatoError):
            ledger.apply(operation)
        for each, stored in ledger.spends.items():
            found = stored.at(ledger.now_us)
            counted = ledger.sum_up(found.account_id, found.key_id)
            for name in ("day_spent_nanos", "month_spent_nanos", "total_spent_nanos", "held_nanos"):
                assert getattr(found, name) == getattr(counted, name)
            if isinstance(operation, SetSpendLimits):
                continue
            earlier = {limit.period: limit for limit in before[each].allowances()}
            for limit_after in found.allowances():
                used_nanos = limit_after.spent_nanos + limit_after.held_nanos
                was = earlier[limit_after.period]
                # Only a limit that was lowered is ever exceeded, and then not by anything new.
                assert used_nanos <= max(limit_after.limit_nanos, was.spent_nanos + was.held_nanos)


def test_a_key_that_replaces_another_shares_its_limits_and_what_was_spent() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100, total=500))
    spend(ledger, 1, 10)
    spent_nanos = ledger.spends[spend_id(ACCOUNT, KEY)].total_spent_nanos
    inherited = ledger.apply(inherit())
    assert (inherited.key_id, inherited.limits) == ("key_new", SpendLimits(100, None, 500))
    assert (inherited.day_spent_nanos, inherited.total_spent_nanos) == (spent_nanos, spent_nanos)
    assert spent_nanos > 0
    # The one that replaces it in turn, too; and a limit of one is a limit of all.
    ledger.apply(inherit("key_newest", "key_new"))
    changed = ledger.apply(SetSpendLimits(ACCOUNT, "key_newest", SpendLimits(total_nanos=spent_nanos)))
    assert (changed.key_id, changed.total_spent_nanos) == ("key_newest", spent_nanos)
    for key_id in (KEY, "key_new", "key_newest"):
        assert ledger.refusal_of(reserve(2, key=key_id)) is Reason.SPEND_LIMIT_SPENT


def test_keys_that_share_limits_spend_no_more_together_than_one_might() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(total=500))
    ledger.apply(inherit())
    held = [ledger.apply(reserve(number, key=key_id)).held_nanos for number, key_id in ((1, KEY), (2, "key_new"))]
    shared = ledger.spends[spend_id(ACCOUNT, KEY)]
    assert shared.held_nanos == sum(held) <= 500
    ledger.apply(settle(1, completion=3))
    ledger.apply(settle(2, completion=5))
    shared = ledger.spends[spend_id(ACCOUNT, KEY)]
    assert shared == replace(ledger.sum_up(ACCOUNT, KEY), total_limit_nanos=500)
    assert shared.total_spent_nanos == -sum(entry.customer_nanos for entry in ledger.entries if entry.key_id)


def test_a_key_that_was_used_cannot_replace_another() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(total=500))
    ledger.apply(reserve(1, key="key_new"))
    assert ledger.refusal_of(inherit()) is Reason.REQUEST_INVALID
    ledger.apply(settle(1, completion=3))
    assert ledger.refusal_of(inherit()) is Reason.REQUEST_INVALID


def test_a_key_with_limits_of_its_own_inherits_none() -> None:
    ledger = ledger_at_noon()
    ledger.apply(limit(day=100))
    ledger.apply(SetSpendLimits(ACCOUNT, "key_new", SpendLimits(day_nanos=7)))
    for _ in range(2):
        assert ledger.apply(inherit()).limits == SpendLimits(7)
    ledger.apply(SetSpendLimits(ACCOUNT, "key_new", SpendLimits()))
    assert ledger.apply(inherit()).limits == SpendLimits()
