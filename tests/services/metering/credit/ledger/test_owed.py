"""What an account owes for a payment that was returned while its credit was held or spent."""

from typing import Any

import pytest

from services.chassis.errors import LegatoError, Reason
from services.metering.credit.records import (
    AccountBalance,
    Adjust,
    Entry,
    Operation,
    OwedChange,
    RestorePayment,
    ReturnPayment,
    Sweep,
)
from tests.services.metering.credit.ledger.paper import Ledger
from tests.services.metering.samples import (
    ACCOUNT,
    checkpoint,
    extend,
    grant,
    request_id,
    reserve,
    settle,
    void,
)

REFUND = ReturnPayment("re", ACCOUNT, 100, "Refund")


def refunded_while_held() -> Ledger:
    """A payment of 100 of which a running request holds 60 was refunded: 40 were free, and 60 are owed."""
    books = Ledger(100)
    books.apply(reserve(1, output=6))
    assert books.apply(REFUND) == AccountBalance(ACCOUNT, 60, 60, owed_nanos=60)
    assert legs(books.entries[-1]) == (-40, -60, 100)
    return books


def legs(entry: Entry) -> tuple[int, int, int]:
    return entry.customer_nanos, entry.loss_nanos, entry.external_nanos


def account_of(books: Ledger) -> AccountBalance:
    return books.accounts[ACCOUNT]


def sweep(number: int) -> Sweep:
    return Sweep(request_id(number), ACCOUNT)


@pytest.mark.parametrize(
    ("end", "charged_nanos"),
    [(settle(1, completion=2), 20), (settle(1, completion=6), 60), (void(1), 0), (sweep(1), 30)],
    ids=["settled", "settled at all of it", "released", "swept"],
)
def test_what_a_hold_releases_pays_what_is_owed_first(end: Operation[Any], charged_nanos: int) -> None:
    books = refunded_while_held()
    books.apply(checkpoint(1, completion=3))
    if isinstance(end, Sweep):
        books.past_the_deadline()
    books.apply(end)
    assert account_of(books) == AccountBalance(ACCOUNT, 0, 0, owed_nanos=charged_nanos)
    if charged_nanos < 60:
        repaid = books.entries[-1]
        assert (repaid.kind, legs(repaid)) == ("adjustment", (charged_nanos - 60, 60 - charged_nanos, 0))
    books.apply(end)
    assert account_of(books) == AccountBalance(ACCOUNT, 0, 0, owed_nanos=charged_nanos)


def test_new_chats_wait_while_running_ones_may_still_cover_it_and_are_refused_when_none_can() -> None:
    books = Ledger(100)
    books.apply(reserve(1, output=8))
    books.apply(ReturnPayment("re", ACCOUNT, 50, "Refund"))
    assert account_of(books) == AccountBalance(ACCOUNT, 80, 80, owed_nanos=30)
    assert books.refusal_of(reserve(2, output=5)) is Reason.CREDITS_HELD
    with pytest.raises(LegatoError, match=r"owes 0\.00000003 USD") as refused:
        books.apply(reserve(2, prompt=25))
    assert refused.value.reason is Reason.CREDITS_EXHAUSTED
    books.apply(void(1))
    assert account_of(books) == AccountBalance(ACCOUNT, 50, 0)
    books.apply(reserve(2, output=5))


def test_running_chat_keeps_what_it_holds_and_gets_no_more() -> None:
    books = refunded_while_held()
    answer = books.apply(extend(1, 70))
    assert (answer.extended, answer.affordable_nanos, answer.balance_nanos) == (False, 60, 60)
    assert books.apply(settle(1, completion=7)).charged_nanos == 60


def test_top_ups_pay_what_is_owed_first() -> None:
    books = refunded_while_held()
    books.apply(settle(1, completion=6))
    assert books.apply(grant(25, grant_id="later")) == AccountBalance(ACCOUNT, 0, 0, owed_nanos=35)
    assert books.apply(grant(25, grant_id="later")) == AccountBalance(ACCOUNT, 0, 0, owed_nanos=35)
    assert books.apply(Adjust("later", ACCOUNT, 50, "goodwill")) == AccountBalance(ACCOUNT, 15, 0)
    assert sum(entry.loss_nanos for entry in books.entries) == 0
    # Each of both has its own, though they have the same id.
    assert [each for each in books.owed_changes.values() if each.owed_nanos < 0] == [
        OwedChange("repayment.grant.later", ACCOUNT, -25, books.now_us),
        OwedChange("repayment.adjustment.later", ACCOUNT, -35, books.now_us),
    ]


def test_a_dispute_that_is_won_gives_back_what_was_taken_and_ends_what_is_owed() -> None:
    for is_settled in (False, True):
        books = refunded_while_held()
        if is_settled:
            books.apply(settle(1, completion=2))
        restored = books.apply(RestorePayment("re-restored", ACCOUNT, 100, "re", "Dispute won"))
        assert restored == (AccountBalance(ACCOUNT, 80, 0) if is_settled else AccountBalance(ACCOUNT, 100, 60))
        assert sum(entry.loss_nanos for entry in books.entries) == 0
        assert books.apply(RestorePayment("re-restored", ACCOUNT, 100, "re", "Dispute won")) == restored


def test_several_returns_are_owed_together_and_each_is_restored_by_itself() -> None:
    books = Ledger(100)
    books.apply(reserve(1, output=10))
    for return_id in ("first", "second"):
        books.apply(ReturnPayment(return_id, ACCOUNT, 40, "Refund"))
    assert account_of(books) == AccountBalance(ACCOUNT, 100, 100, owed_nanos=80)
    books.apply(settle(1, completion=3))
    assert account_of(books) == AccountBalance(ACCOUNT, 0, 0, owed_nanos=10)
    books.apply(RestorePayment("first-restored", ACCOUNT, 40, "first", "failed"))
    assert account_of(books) == AccountBalance(ACCOUNT, 30, 0)
    books.apply(RestorePayment("second-restored", ACCOUNT, 40, "second", "failed"))
    assert account_of(books) == AccountBalance(ACCOUNT, 70, 0)


def test_loss_of_a_return_from_before_debts_were_kept_is_reversed_and_not_paid_out() -> None:
    books = refunded_while_held()
    books.owed_changes.clear()
    books.accounts[ACCOUNT] = AccountBalance(ACCOUNT, 60, 60)
    restored = books.apply(RestorePayment("re-restored", ACCOUNT, 100, "re", "failed"))
    assert (restored, legs(books.entries[-1])) == (AccountBalance(ACCOUNT, 100, 60), (40, 60, -100))
