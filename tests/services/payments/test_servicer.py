"""Payments between a Stripe of ours and a real ledger: what was paid is booked once, whatever Stripe sends."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import Final

import pytest

from legato_protos.payments.v1 import payments_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.metering.credit.records import Adjust
from tests.services.payments.conftest import ACCOUNT, CONTEXT, ORIGIN, Desk
from tests.support.outside.stripe_server import CARD_NUMBER, EMAIL, SECRET_KEY, WEBHOOK_SECRET, sign

CENT: Final = 10_000_000
PAID: Final = "checkout.session.completed"


DAY_S = 24 * 60 * 60


async def spend(desk: Desk, nanos: int) -> None:
    await desk.metering.writer.submit(Adjust("spent", ACCOUNT, -nanos, "spent"), lambda answer: answer)


async def test_a_paid_checkout_becomes_credit_to_the_nano_dollar(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 12_34)
    assert await desk.tell(PAID, payment)
    assert desk.metering.entries() == [(f"stripe-{payment}", "Card payment", 12_340_000_000, 0)]


async def test_an_event_that_comes_again_and_another_of_the_same_payment_book_nothing(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    event = sign(desk.stripe.event(PAID, payment))
    for each in (event, event, sign(event.payload)):
        assert await desk.receive(each)
    assert await desk.tell("checkout.session.async_payment_succeeded", payment)
    assert desk.metering.balance_nanos(ACCOUNT) == 500 * CENT
    assert len(desk.metering.entries()) == 1


async def test_a_checkout_that_is_not_paid_yet_books_nothing(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500, is_paid=False)
    assert not await desk.tell(PAID, payment)
    assert desk.metering.entries() == []


async def test_a_refund_that_is_heard_of_before_its_payment_ends_right(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    refund = desk.stripe.refund(payment, 200)
    assert await desk.tell("charge.refunded", payment)
    assert await desk.tell(PAID, payment)
    assert desk.metering.entries() == [
        (f"stripe-{payment}", "Card payment", 500 * CENT, 0),
        (f"stripe-{refund}", f"Refund of {payment}", -200 * CENT, 0),
    ]


async def test_partial_refunds_take_back_what_each_returned(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    await desk.tell(PAID, payment)
    for cents, left in ((100, 400), (150, 250), (250, 0)):
        desk.stripe.refund(payment, cents)
        for _ in range(2):
            await desk.tell("charge.refunded", payment)
        assert desk.metering.balance_nanos(ACCOUNT) == left * CENT
    assert len(desk.metering.entries()) == 4


async def test_a_refund_that_failed_gives_back_what_it_took(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    refund = desk.stripe.refund(payment, 500, "pending")
    await desk.tell("refund.created", payment)
    assert desk.metering.balance_nanos(ACCOUNT) == 0
    desk.stripe.set_status(refund, "failed")
    for _ in range(2):
        await desk.tell("refund.failed", payment)
    assert desk.metering.balance_nanos(ACCOUNT) == 500 * CENT
    # A new one after it counts by itself.
    desk.stripe.refund(payment, 300)
    await desk.tell("charge.refunded", payment)
    assert desk.metering.balance_nanos(ACCOUNT) == 200 * CENT


@pytest.mark.parametrize(("outcome", "left"), [("lost", 0), ("won", 500)])
async def test_a_dispute_takes_the_credit_until_it_is_won(desk: Desk, outcome: str, left: int) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    await desk.tell(PAID, payment)
    dispute = desk.stripe.dispute(payment, 500, "warning_needs_response")
    await desk.tell("charge.dispute.created", payment)
    assert desk.metering.balance_nanos(ACCOUNT) == 500 * CENT
    desk.stripe.set_status(dispute, "needs_response")
    await desk.tell("charge.dispute.funds_withdrawn", payment)
    assert desk.metering.balance_nanos(ACCOUNT) == 0
    desk.stripe.set_status(dispute, outcome)
    for _ in range(2):
        await desk.tell("charge.dispute.closed", payment)
    assert desk.metering.balance_nanos(ACCOUNT) == left * CENT


async def test_what_was_spent_before_a_dispute_is_owed_until_it_is_won(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    await desk.tell(PAID, payment)
    await spend(desk, 4_999_999_999)
    dispute = desk.stripe.dispute(payment, 500)
    await desk.tell("charge.dispute.created", payment)
    assert desk.metering.entries()[-1] == (f"stripe-{dispute}", f"Dispute of {payment}", -1, -4_999_999_999)
    desk.stripe.set_status(dispute, "won")
    await desk.tell("charge.dispute.closed", payment)
    restored_id = f"stripe-{dispute}-restored"
    assert desk.metering.entries()[-2:] == [
        (restored_id, f"Dispute won: {payment}", 5_000_000_000, 0),
        (f"repayment.adjustment.{restored_id}", "Owed for a refund or dispute", -4_999_999_999, 4_999_999_999),
    ]
    assert desk.metering.balance_nanos(ACCOUNT) == 1


async def test_a_forged_event_an_old_one_and_one_that_was_changed_are_refused(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    payload = desk.stripe.event(PAID, payment)
    signed = sign(payload)
    before = desk.stripe.requests
    for event in (
        sign(payload, secret="whsec_guessed"),
        sign(payload, at_s=time.time() - 3_600),
        signed._replace(payload=payload.replace(b"evt_", b"evt-")),
        signed._replace(signature=""),
        signed._replace(signature="t=1,v1=0"),
        signed._replace(signature=signed.signature[:-1] + "é"),
        signed._replace(payload=b"\xff"),
    ):
        assert await desk.refusal(event) is Reason.REQUEST_INVALID
    assert desk.metering.entries() == []
    # A forged event makes us ask nothing.
    assert desk.stripe.requests == before
    assert desk.servicer.events == {"forged": 7}


async def test_events_that_are_about_nothing_of_ours_are_taken_and_ignored(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    assert not await desk.tell("customer.created", payment)
    assert not await desk.tell(PAID, payment, account="acct_connected")
    assert not await desk.receive(sign(b'{"type": "charge.refunded", "data": {"object": {"payment_intent": null}}}'))
    assert not await desk.receive(sign(b'{"type": "charge.refunded"}'))
    # Made by another program, in the same account of Stripe.
    desk.stripe.intents[payment]["metadata"] = {}
    assert not await desk.tell(PAID, payment)
    assert desk.metering.entries() == []


async def test_the_account_is_the_one_that_we_wrote_and_nothing_that_an_event_says(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    payload = desk.stripe.event(PAID, payment).replace(
        b'"payment_intent"', b'"client_reference_id": "acct_other", "amount_total": 1, "payment_intent"'
    )
    assert await desk.receive(sign(payload))
    assert desk.metering.balance_nanos("acct_other") == 0
    assert desk.metering.balance_nanos(ACCOUNT) == 500 * CENT


async def test_while_metering_or_stripe_is_away_nothing_is_answered_and_nothing_is_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    event = sign(desk.stripe.event(PAID, payment))
    await desk.metering.stop()
    with monkeypatch.context() as patch:
        patch.setattr("services.payments.servicer.METERING_TIMEOUT_S", 0.05)
        assert await desk.refusal(event) is Reason.UNAVAILABLE
    await desk.metering.start()
    desk.stripe.fails_with = 500
    assert await desk.refusal(event) is Reason.UNAVAILABLE
    desk.stripe.fails_with = 0
    assert await desk.receive(event)
    assert desk.metering.balance_nanos(ACCOUNT) == 500 * CENT
    assert desk.servicer.events == {"failed": 2, "booked": 1}


async def test_an_answer_that_was_lost_after_the_booking_is_asked_for_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    desk.stripe.refund(payment, 100)

    def crash(name: str) -> None:
        assert name == "payments.booked"
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr("services.chassis.process.failpoints.hit", crash)
        with pytest.raises(ConnectionError):
            await desk.tell(PAID, payment)
    assert await desk.tell(PAID, payment)
    assert desk.metering.balance_nanos(ACCOUNT) == 400 * CENT
    assert len(desk.metering.entries()) == 2


async def test_another_currency_is_never_booked_as_dollars(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500, currency="cad")
    assert await desk.refusal(sign(desk.stripe.event(PAID, payment))) is Reason.INTERNAL
    assert desk.metering.entries() == []


async def test_a_checkout_is_created_once_for_its_account_and_amount(desk: Desk) -> None:
    request = pb.CreateCheckoutRequest(account_id=ACCOUNT, amount_cents=2_500, operation_id="form-1")
    created = await desk.servicer.CreateCheckout(request, CONTEXT)
    again = await desk.servicer.CreateCheckout(request, CONTEXT)
    assert (created.checkout_id, created.url) == (again.checkout_id, again.url)
    [asked] = desk.stripe.session_params
    assert asked["client_reference_id"] == ACCOUNT
    assert asked["payment_intent_data[metadata][legato_account_id]"] == ACCOUNT
    assert asked["line_items[0][price_data][unit_amount]"] == "2500"
    assert asked["success_url"] == f"{ORIGIN}/credit/payment?checkout={{CHECKOUT_SESSION_ID}}"
    assert asked["cancel_url"] == f"{ORIGIN}/credit/add?cancelled=1"


@pytest.mark.parametrize("cents", [-1, 0, 499, 100_001])
async def test_amounts_outside_of_the_settings_are_refused(desk: Desk, cents: int) -> None:
    request = pb.CreateCheckoutRequest(account_id=ACCOUNT, amount_cents=cents, operation_id="form-1")
    with pytest.raises(LegatoError, match=re.escape("between $5 and $1,000")) as refused:
        await desk.servicer.CreateCheckout(request, CONTEXT)
    assert refused.value.reason is Reason.REQUEST_INVALID
    assert desk.stripe.session_params == []


async def test_a_payer_who_comes_back_sees_it_booked_even_before_the_event(desk: Desk) -> None:
    created = await desk.servicer.CreateCheckout(
        pb.CreateCheckoutRequest(account_id=ACCOUNT, amount_cents=2_500, operation_id="form-1"), CONTEXT
    )
    asked = pb.GetCheckoutRequest(account_id=ACCOUNT, checkout_id=created.checkout_id)
    assert (await desk.servicer.GetCheckout(asked, CONTEXT)).state == pb.CHECKOUT_STATE_OPEN
    payment = desk.stripe.pay(created.checkout_id)
    found = await desk.servicer.GetCheckout(asked, CONTEXT)
    assert (found.state, found.amount_cents, found.payment_id) == (
        pb.CHECKOUT_STATE_BOOKED, 2_500, f"stripe-{payment}",
    )  # fmt: skip
    await desk.tell(PAID, payment)
    assert desk.metering.balance_nanos(ACCOUNT) == 2_500 * CENT


async def test_a_checkout_of_another_account_does_not_exist(desk: Desk) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    [checkout_id] = desk.stripe.sessions
    for asked in (checkout_id, "cs_unknown", "../refunds", ""):
        with pytest.raises(LegatoError) as refused:
            await desk.servicer.GetCheckout(pb.GetCheckoutRequest(account_id="acct_other", checkout_id=asked), CONTEXT)
        assert refused.value.reason is Reason.NOT_FOUND
    assert desk.metering.entries() == []
    assert payment in desk.stripe.intents


async def test_no_log_line_has_a_card_an_address_or_a_secret(desk: Desk, log_text: Callable[[], str]) -> None:
    payment = desk.stripe.new_payment(ACCOUNT, 500)
    await desk.tell(PAID, payment)
    await desk.refusal(sign(desk.stripe.event(PAID, payment), secret="whsec_guessed"))
    desk.stripe.fails_with = 402
    await desk.refusal(sign(desk.stripe.event(PAID, payment)))
    text = log_text()
    assert "payment.booked" in text
    assert "stripe.failed" in text
    for secret in (CARD_NUMBER, CARD_NUMBER[-4:], EMAIL, SECRET_KEY, WEBHOOK_SECRET):
        assert secret not in text


async def test_what_is_paid_for_an_unknown_account_is_not_booked_until_its_owner_begins_to_pay(
    desk: Desk,
) -> None:
    """As where another service uses the same account at Stripe."""
    theirs = "acct_bbbbbbbbbbbbbbbb"
    payment = desk.stripe.new_payment(theirs, 500)
    event = sign(desk.stripe.event(PAID, payment))
    assert await desk.refusal(event) is Reason.INTERNAL
    assert desk.metering.entries() == []
    request = pb.CreateCheckoutRequest(account_id=theirs, operation_id="first", amount_cents=500)
    await desk.servicer.CreateCheckout(request, CONTEXT)
    assert await desk.receive(event)
    assert desk.metering.balance_nanos(theirs) == 500 * CENT


async def book_since(desk: Desk, start_s: int, *, opens: bool = True) -> list[str]:
    """Does what `legato credits book-payments` does; returns the payments that it was told."""
    listed = pb.ListPaymentsRequest()
    listed.start_time.seconds = start_s
    found = (await desk.servicer.ListPayments(listed, CONTEXT)).payments
    for payment in found:
        book = pb.BookPaymentRequest(payment_id=payment.payment_id, opens_account=opens and bool(payment.account_id))
        assert (await desk.servicer.BookPayment(book, CONTEXT)).is_booked
    return [payment.payment_id for payment in found]


async def test_what_a_restored_ledger_does_not_have_is_read_from_stripe_and_booked_once(desk: Desk) -> None:
    known = desk.stripe.new_payment(ACCOUNT, 1_000)
    await desk.tell("checkout.session.completed", known)
    backup_s = desk.stripe.now_s = desk.stripe.now_s + DAY_S * 30
    desk.stripe.now_s += 60
    # None of these was told, or the ledger that was told is lost.
    made = [desk.stripe.new_payment(ACCOUNT, cents) for cents in (500, 700, 900)]
    first = desk.stripe.new_payment("acct_bbbbbbbbbbbbbbbb", 2_000)
    desk.stripe.new_payment(ACCOUNT, 800, is_paid=False)
    desk.stripe.new_payment("", 900)
    desk.stripe.refund(known, 300)

    assert sorted(await book_since(desk, backup_s)) == sorted([known, *made, first])
    assert desk.metering.balance_nanos(ACCOUNT) == (1_000 + 500 + 700 + 900 - 300) * 10_000_000
    assert desk.metering.balance_nanos("acct_bbbbbbbbbbbbbbbb") == 2_000 * 10_000_000
    entries = desk.metering.entries()
    # Again, and beside an event that Stripe sends after all.
    await asyncio.gather(book_since(desk, backup_s), desk.tell("checkout.session.completed", made[0]))
    assert desk.metering.entries() == entries


async def test_a_payment_of_before_the_backup_is_not_read_again(desk: Desk) -> None:
    desk.stripe.new_payment(ACCOUNT, 1_000)
    desk.stripe.now_s += DAY_S * 30
    assert await book_since(desk, desk.stripe.now_s) == []
