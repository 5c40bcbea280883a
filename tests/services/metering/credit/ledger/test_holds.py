"""The rules of a request, one by one."""

import json
from typing import Any

import pytest

from services.chassis.errors import LegatoError, Reason
from services.metering.credit.ledger.holds import UnmatchedSettlement
from services.metering.credit.prices import Prices
from services.metering.credit.records import Extended, Operation, Reserved, Settled
from services.rules.usage import Usage, counts_of
from tests.services.metering.credit.ledger.paper import LIFE_US, START_US, Ledger
from tests.services.metering.samples import (
    PRICES,
    checkpoint,
    claimed,
    extend,
    model_call,
    reserve,
    settle,
    sweep,
    void,
)


def test_reserve_holds_the_prompt_and_the_output_asked_for() -> None:
    ledger = Ledger(1_000)
    assert ledger.apply(reserve(1, prompt=5, output=10)) == Reserved(110, 890, 1, PRICES["forte"])
    assert (ledger.balance_nanos, ledger.held_nanos) == (1_000, 110)
    assert ledger.hold(1).deadline_at_us == START_US + LIFE_US


def test_reserve_holds_what_the_balance_affords_where_that_is_less() -> None:
    ledger = Ledger(25)
    assert ledger.apply(reserve(1, prompt=5, output=10)).held_nanos == 25
    assert ledger.held_nanos == 25


def test_reserve_without_output_holds_one_token_of_it() -> None:
    assert Ledger(100).apply(reserve(1, prompt=5, output=0)).held_nanos == 20


def test_reserve_holds_all_of_a_whole_answer_where_many_of_them_are_free() -> None:
    ledger = Ledger(1_700)
    # Two nanos for the prompt and 200 for the output, as long as 1,616 are free.
    for number, held_nanos in ((1, 202), (2, 102), (3, 102)):
        assert ledger.apply(reserve(number, prompt=1, output=10, whole=20)).held_nanos == held_nanos
    assert ledger.held_nanos == 406
    assert Ledger(1_615).apply(reserve(1, prompt=1, output=10, whole=20)).held_nanos == 102
    assert Ledger(1_616).apply(reserve(1, prompt=1, output=10, whole=20)).held_nanos == 202


def test_reserve_beyond_the_balance_is_refused_for_good() -> None:
    assert Ledger(19).refusal_of(reserve(1, prompt=5)) is Reason.CREDITS_EXHAUSTED
    assert Ledger().refusal_of(reserve(1)) is Reason.CREDITS_EXHAUSTED


def test_reserve_is_asked_to_wait_where_running_requests_hold_the_credit() -> None:
    ledger = Ledger(100)
    ledger.apply(reserve(1, output=10))
    with pytest.raises(LegatoError) as refusal:
        ledger.apply(reserve(2))
    assert (refusal.value.reason, refusal.value.retry_after_s) == (Reason.CREDITS_HELD, 1)


def test_repeated_reserve_is_told_the_stored_amount_and_price() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=10))
    ledger.prices = Prices(2, {1: PRICES, 2: {"forte": PRICES["mezzo"]}})
    assert ledger.apply(reserve(1, output=99)) == Reserved(100, 900, 1, PRICES["forte"])
    assert ledger.held_nanos == 100


def test_reserve_of_a_resolved_request_must_not_go_on() -> None:
    ledger = Ledger(1_000)
    for number in (1, 2, 3):
        ledger.apply(reserve(number))
    ledger.apply(settle(1))
    ledger.apply(void(2))
    ledger.past_the_deadline().apply(sweep(3))
    for number in (1, 2, 3):
        assert ledger.refusal_of(reserve(number)) is Reason.REQUEST_RESOLVED


def test_request_of_another_account_is_not_touched() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    for operation in (
        reserve(1, account="acct_b"), extend(1, 500, account="acct_b"), settle(1, account="acct_b"),
        void(1, account="acct_b"), sweep(1, account="acct_b"), checkpoint(1, completion=1, account="acct_b"),
    ):  # fmt: skip
        assert ledger.refusal_of(operation) is Reason.REQUEST_INVALID


def test_extend_is_absolute() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=10))
    for _ in range(2):
        assert ledger.apply(extend(1, 300)) == Extended(True, 300, 300, 1_000, 1_000)
    assert ledger.held_nanos == 300


def test_late_extend_to_less_changes_nothing() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=30))
    assert ledger.apply(extend(1, 200)) == Extended(True, 200, 300, 1_000, 1_000)
    assert ledger.held_nanos == 300


def test_extend_beyond_the_credit_is_refused_and_told_what_is_affordable_now_and_without_other_requests() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=10))
    ledger.apply(reserve(2, output=20))
    assert ledger.apply(extend(1, 801)) == Extended(False, 801, 100, 800, 1_000)
    assert ledger.apply(extend(1, 800)).extended
    assert ledger.held_nanos == 1_000


def test_extend_of_what_is_not_held_is_refused() -> None:
    ledger = Ledger(1_000)
    assert ledger.refusal_of(extend(1, 100)) is Reason.REQUEST_RESOLVED
    ledger.apply(reserve(1))
    ledger.apply(settle(1))
    assert ledger.refusal_of(extend(1, 100)) is Reason.REQUEST_RESOLVED


def test_checkpoint_grows_and_never_falls_back_even_where_extend_is_refused() -> None:
    ledger = Ledger(100)
    ledger.apply(reserve(1, output=10))
    ledger.apply(extend(1, 9_999, delivered=Usage(completion_tokens=5)))
    ledger.apply(extend(1, 0, delivered=Usage(completion_tokens=3)))
    assert ledger.hold(1).usage == Usage(completion_tokens=5)


def test_checkpoint_of_its_own_grows_and_never_falls_back() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, output=10))
    for completion, kept in ((3, 3), (5, 5), (4, 5), (0, 5)):
        ledger.apply(checkpoint(1, prompt=1, completion=completion))
        assert ledger.hold(1).usage == Usage(prompt_tokens=1, completion_tokens=kept)
    assert (ledger.hold(1).basis, ledger.balance_nanos, ledger.held_nanos) == ("checkpoint", 1_000, 100)


def test_checkpoint_of_what_is_not_held_is_passed_over() -> None:
    ledger = Ledger(1_000)
    for number in (1, 2, 3):
        ledger.apply(reserve(number))
    ledger.apply(settle(1, completion=1))
    ledger.apply(void(2))
    ledger.past_the_deadline().apply(sweep(3))
    before = dict(ledger.holds)
    for number in (1, 2, 3, 4):
        ledger.apply(checkpoint(number, completion=9))
    assert ledger.holds == before


def test_settle_charges_what_was_used_and_gives_the_rest_back() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, prompt=10, output=10))
    assert ledger.apply(settle(1, prompt=10, cached=4, completion=3)) == Settled(46, 0)
    assert (ledger.balance_nanos, ledger.held_nanos) == (954, 0)
    entry = ledger.entries[-1]
    assert (entry.kind, entry.customer_nanos, entry.revenue_nanos, entry.loss_nanos) == ("charge", -46, 46, 0)
    assert entry.reason is None
    assert (entry.basis, entry.end, entry.price_version, entry.hour_us) == ("provider", "complete", 1, START_US)


def test_settle_takes_from_the_hold_and_then_from_free_credit() -> None:
    ledger = Ledger(200)
    ledger.apply(reserve(1, output=10))
    assert ledger.apply(settle(1, completion=15)) == Settled(150, 0)


def test_settle_beyond_hold_and_free_credit_is_booked_as_loss() -> None:
    ledger = Ledger(200)
    ledger.apply(reserve(1, output=10))
    ledger.apply(reserve(2, output=7))
    assert ledger.apply(settle(1, completion=15)) == Settled(130, 20)
    assert (ledger.balance_nanos, ledger.held_nanos) == (70, 70)
    assert (ledger.entries[-1].loss_nanos, ledger.entries[-1].reason) == (-20, "beyond_credit")


def test_repeated_settle_charges_once_and_keeps_to_its_first_word() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    call = model_call("acme", "large", 7)
    first = ledger.apply(settle(1, completion=3, routes_version="0123456789ab", calls=[call]))
    assert ledger.apply(settle(1, completion=3)) == ledger.apply(settle(1, completion=9)) == first
    assert (ledger.balance_nanos, ledger.hold(1).routes_version) == (970, "0123456789ab")
    assert json.loads(ledger.hold(1).model_calls or "") == [["acme", "large", 7, list(counts_of(call.usage))]]


def test_settle_is_charged_by_the_price_of_its_reservation() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    ledger.prices = Prices(2, {1: PRICES, 2: {"forte": PRICES["mezzo"]}})
    assert ledger.apply(settle(1, completion=3)).charged_nanos == 30


def test_settle_without_a_hold_is_an_alarm() -> None:
    ledger = Ledger(1_000)
    with pytest.raises(UnmatchedSettlement):
        ledger.apply(settle(1, completion=3))
    ledger.apply(void(1))
    with pytest.raises(UnmatchedSettlement):
        ledger.apply(settle(1, completion=3))
    assert ledger.balance_nanos == 1_000


def test_void_gives_everything_back() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    for _ in range(2):
        ledger.apply(void(1))
    assert (ledger.balance_nanos, ledger.held_nanos, ledger.hold(1).state) == (1_000, 0, "void")


def test_void_of_an_unknown_request_leaves_a_mark_that_a_late_reserve_finds() -> None:
    ledger = Ledger(1_000)
    ledger.apply(void(1))
    assert ledger.refusal_of(reserve(1)) is Reason.REQUEST_RESOLVED
    assert ledger.held_nanos == 0


def test_void_after_settle_changes_nothing() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    ledger.apply(settle(1, completion=3))
    ledger.apply(void(1))
    assert (ledger.hold(1).state, ledger.balance_nanos) == ("settled", 970)


def test_void_of_a_client_that_leaves_by_habit_charges_its_prompt_once() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    for _ in range(2):
        ledger.apply(void(1, due=Usage(prompt_tokens=6)))
    hold, [*_, entry] = ledger.hold(1), ledger.entries
    assert (hold.state, hold.basis, hold.charged_nanos, hold.prompt_tokens) == ("settled", "counted", 12, 6)
    assert (entry.kind, entry.customer_nanos, entry.end) == ("charge", -12, "refused")
    assert (ledger.balance_nanos, ledger.held_nanos) == (988, 0)


def test_prompt_of_a_request_that_was_given_back_is_not_charged_later() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    ledger.apply(void(1))
    ledger.apply(void(1, due=Usage(prompt_tokens=6)))
    assert (ledger.hold(1).state, ledger.balance_nanos) == ("void", 1_000)


def test_void_books_what_may_have_been_delivered_as_loss() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1))
    ledger.apply(void(1, lost=Usage(completion_tokens=2)))
    entry = ledger.entries[-1]
    assert (entry.kind, entry.customer_nanos, entry.revenue_nanos, entry.loss_nanos) == ("loss", 0, 20, -20)
    assert entry.reason == "not_confirmed"
    assert (ledger.balance_nanos, ledger.held_nanos, ledger.hold(1).loss_nanos) == (1_000, 0, 20)


def test_as_many_requests_of_a_key_run_at_once_as_allowed_and_not_one_more() -> None:
    ledger = Ledger(1_000)
    for number in (1, 2, 3):
        ledger.apply(reserve(number, at_once=3))
    with pytest.raises(LegatoError) as refusal:
        ledger.apply(reserve(4, at_once=3))
    assert (refusal.value.reason, refusal.value.retry_after_s) == (Reason.TOO_MANY_AT_ONCE, 1)
    assert "its limit is 3" in refusal.value.message
    # Others' limits are their own.
    ledger.apply(reserve(4, at_once=4))
    ledger.apply(reserve(5))


@pytest.mark.parametrize("end", [settle(1, completion=1), void(1), sweep(1)], ids=["settled", "void", "swept"])
def test_request_that_is_over_makes_room_for_another(end: Operation[Any]) -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, at_once=1))
    assert ledger.refusal_of(reserve(2, at_once=1)) is Reason.TOO_MANY_AT_ONCE
    ledger.past_the_deadline().apply(end)
    ledger.apply(reserve(2, at_once=1))


def test_repeat_of_a_reserve_is_answered_as_before_however_many_run() -> None:
    ledger = Ledger(1_000)
    first = ledger.apply(reserve(1, at_once=1))
    assert ledger.apply(reserve(1, at_once=1)) == first


def test_repeat_under_an_idempotency_key_is_told_so_however_many_run() -> None:
    ledger = Ledger(1_000)
    ledger.apply(reserve(1, at_once=1, claim=claimed()))
    assert ledger.refusal_of(reserve(2, at_once=1, claim=claimed())) is Reason.REQUEST_REPEATED
