"""Credit by card: who may add it, the way to the payment provider and back, and the provider's events."""

import shutil
import tempfile
from pathlib import Path

import pytest

from legato_protos.payments.v1 import payments_pb2 as pb
from services.chassis.access_tokens import AccountRole
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness
from tests.console.metering import ACCOUNT_ID, DOLLAR
from tests.console.payments import CHECKOUT_ID, PAYMENT_ID
from tests.support.outside.stripe_server import sign

OUTCOME = f"/credit/payment?checkout={CHECKOUT_ID}"


def created(console: ConsoleHarness) -> list[pb.CreateCheckoutRequest]:
    return [each for each in console.backends.requests if isinstance(each, pb.CreateCheckoutRequest)]


@pytest.mark.parametrize(
    ("fields", "cents"),
    [
        ({"amount": "25"}, 2_500),
        ({"amount": "25", "other": "12.34"}, 1_234),
        ({"other": "$1,000.00"}, 100_000),
        ({"amount": "25", "other": " 7 "}, 700),
    ],
)
def test_an_amount_leads_to_the_page_where_it_is_paid(
    console: ConsoleHarness, fields: dict[str, str], cents: int
) -> None:
    session = console.auth.sign_in()
    answer = console.post("/credit/add", {"form_id": "a1b2", **fields}, session)
    # No redirect: browsers do not let a form lead elsewhere.
    assert answer.status == 200
    [checkout] = console.payments.stripe.sessions.values()
    assert (checkout["amount_total"], checkout["client_reference_id"]) == (cents, ACCOUNT_ID)
    assert answer.headers["refresh"] == f"0;url={checkout['url']}"
    assert f'href="{checkout["url"]}"' in answer.text
    assert f"${cents / 100:,.2f}" in answer.text


@pytest.mark.parametrize("other", ["0.001", "5,00", "ten", "-5", "1e3", "4.99", "1000.01", "9" * 12, ""])
def test_an_amount_that_is_none_is_asked_for_again(console: ConsoleHarness, other: str) -> None:
    session = console.auth.sign_in()
    answer = console.post("/credit/add", {"form_id": "a1b2", "other": other}, session)
    assert answer.status == 400
    assert "One field needs another look" in answer.text
    assert "refresh" not in answer.headers


@pytest.mark.parametrize("role", [AccountRole.MEMBER, AccountRole.VIEWER])
def test_only_owners_add_credit(console: ConsoleHarness, role: AccountRole) -> None:
    console.auth.set_role(role)
    session = console.auth.sign_in()
    assert "/credit/add" not in console.get("/credit", session).text
    assert console.get("/credit/add", session).status == 403
    assert console.post("/credit/add", {"form_id": "a1b2", "amount": "25"}, session).status == 403
    assert console.get(OUTCOME, session).status == 403
    assert created(console) == []


def test_a_user_who_paid_comes_back_to_the_credit_and_reads_how_much_it_was(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    console.payments.pay()
    answer = console.get(OUTCOME, session)
    assert (answer.status, answer.headers["location"]) == (303, "/credit")
    [cookie] = [each for each in answer.cookies if each.startswith("legato-notice=")]
    page = console.get("/credit", headers={"Cookie": f"__Host-legato={session}; {cookie.partition(';')[0]}"}).text
    assert "$25.00 were added to your credit" in page
    assert PAYMENT_ID in page
    assert f"Refund of {PAYMENT_ID}" in page


def test_an_outcome_that_is_not_known_yet_says_so(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    for status, words in (
        ("complete", "Your payment was received"),
        ("open", "This payment is not complete"),
        ("expired", "This payment has expired"),
    ):
        console.payments.reset()
        console.payments.begin_checkout(status)
        assert words in console.get(OUTCOME, session).text
    console.backends.fail = {"PaymentService.GetCheckout": not_answering()}
    answer = console.get(OUTCOME, session)
    assert (answer.status, "Your payment was received" in answer.text) == (200, True)


def test_a_checkout_of_another_user_is_not_found_and_none_is_the_credit(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    assert console.get("/credit/payment?checkout=cs_other", session).status == 404
    assert console.get("/credit/payment", session).headers["location"] == "/credit"


def test_an_event_is_passed_on_byte_by_byte_without_a_session_or_an_origin(console: ConsoleHarness) -> None:
    answer = console.send_event(*sign(b'{"type": "x",  "data": "\xc3\xa9&=+"}\n'))
    assert (answer.status, answer.text) == (200, '{"booked":false}')
    before_nanos = console.metering.balance_nanos()
    answer = console.send_event(*console.payments.event())
    assert (answer.status, answer.text) == (200, '{"booked":true}')
    assert console.metering.balance_nanos() == before_nanos + 25 * DOLLAR


def test_a_forged_event_is_400_and_one_that_cannot_be_booked_now_comes_again(console: ConsoleHarness) -> None:
    assert console.send_event(b"{}", "t=1,v1=forged").status == 400
    console.backends.fail = {"PaymentService.ReceiveEvent": not_answering()}
    assert console.send_event(*sign(b"{}")).status == 503
    console.backends.calls.clear()
    assert console.send_event(*sign(b"x" * 600_000)).status == 413
    assert console.backends.calls == []


def test_forms_of_other_sites_still_add_nothing(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    answer = console.post("/credit/add", {"amount": "25"}, session, {"Sec-Fetch-Site": "cross-site"}, is_ours=False)
    assert answer.status == 403
    assert created(console) == []


def test_without_payments_nothing_of_them_is_there() -> None:
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    console = ConsoleHarness(folder, takes_payments=False)
    console.start()
    try:
        session = console.auth.sign_in()
        page = console.get("/credit", session)
        assert (page.status, "Add credit" in page.text) == (200, False)
        assert console.get("/credit/add", session).status == 404
        assert console.post("/credit/add", {"amount": "25"}, session).status == 404
        assert console.get(OUTCOME, session).status == 404
        assert console.send_event(*sign(b"{}")).status == 404
    finally:
        console.stop()
        shutil.rmtree(folder, ignore_errors=True)
