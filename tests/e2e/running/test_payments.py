"""Credit by card with real processes, from the form in the console to the ledger, and a process that is killed between
the booking and its answer."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.running.test_console import Visitor
from tests.support.outside.stripe_server import (
    CARD_NUMBER,
    EMAIL,
    SECRET_KEY,
    WEBHOOK_SECRET,
    StripeServer,
    deliver,
    sign,
)
from tests.support.service import make_data_folder
from tests.support.up import Up
from tests.support.waiting import wait_until

# The account of `--welcome` begins with five dollars.
FIRST_NANOS = 5 * 10**9
CENT = 10**7


@pytest.fixture
def stripe() -> Iterator[StripeServer]:
    server = StripeServer()
    yield server
    server.close()


def test_a_payment_becomes_credit_once_though_payments_are_killed_at_the_worst_moment(
    socket_folder: Path, stripe: StripeServer
) -> None:
    failpoints = socket_folder / "failpoints"
    failpoints.mkdir()
    environ = {
        "LEGATO_STRIPE_SECRET_KEY": SECRET_KEY,
        "LEGATO_STRIPE_WEBHOOK_SECRET": WEBHOOK_SECRET,
        "LEGATO_STRIPE_API_URL": stripe.url,
        "LEGATO_FAILPOINTS": str(failpoints),
    }
    data = make_data_folder(socket_folder / "data")
    up = Up(data, "--welcome", "--console-port", "0", "--json", environ=environ, is_forked=True)
    try:
        assert "ready" in json.loads(up.line())
        origin, _, code = json.loads(up.line())["console"].partition("/sign-in#")
        visitor = Visitor(origin)
        assert visitor.ask("POST", "/sign-in", {"code": code})[0] == 303
        [account] = up.json("accounts", "list")
        account_id = account["account_id"]

        def balance_nanos() -> int:
            return int(up.json("credits", "balance", account_id)["balance_nanos"])

        _, page = visitor.ask("GET", "/credit/add")
        [form_id] = re.findall(r'name="form_id" value="(\w+)"', page)
        for _ in range(2):
            status, page = visitor.ask("POST", "/credit/add", {"form_id": form_id, "other": "12.34"})
            assert (status, f"{stripe.url}/pay/" in page) == (200, True)
        [checkout_id] = stripe.sessions
        payment = stripe.pay(checkout_id)
        webhook = f"{origin}/stripe/webhook"
        event = stripe.event("checkout.session.completed", payment)
        wait_until(lambda: deliver(webhook, sign(event, secret="whsec_guessed")) == 400)
        assert balance_nanos() == FIRST_NANOS
        # Booked, and killed before it could say so: Stripe sends the event again.
        order = failpoints / "payments.booked"
        order.write_text("1")
        wait_until(lambda: deliver(webhook, sign(event)) == 503 and not order.exists())
        assert balance_nanos() == FIRST_NANOS + 1_234 * CENT
        wait_until(lambda: deliver(webhook, sign(event)) == 200)
        wait_until(lambda: visitor.ask("GET", f"/credit/payment?checkout={checkout_id}")[0] == 303)
        wait_until(lambda: payment in visitor.ask("GET", "/credit")[1])
        stripe.refund(payment, 234)
        for _ in range(2):
            wait_until(lambda: deliver(webhook, sign(stripe.event("charge.refunded", payment))) == 200)
        assert balance_nanos() == FIRST_NANOS + 1_000 * CENT
        assert up.legato("audit").exit_code == 0
        assert up.processes()["payments"]["restarts"] >= 1
    finally:
        up.stop()
        up.close()
    logs = "".join(each.read_text() for each in (socket_folder / "data" / "logs").iterdir())
    assert "payment.booked" in logs
    for secret in (SECRET_KEY, WEBHOOK_SECRET, CARD_NUMBER, EMAIL):
        assert secret not in logs
