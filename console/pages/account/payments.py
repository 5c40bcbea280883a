"""Credit by card: the choice of an amount, the way to the payment provider and back, and the provider's events."""

import secrets
from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response

from console.web.visit import Visit, read_body
from protos.payments.v1 import payments_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import NANOS_PER_DOLLAR, parse_usd

if TYPE_CHECKING:
    from protos.payments.v1.payments_pb2_grpc import PaymentServiceAsyncStub


# Dollars; those that the service allows are offered.
AMOUNTS: Final = (10, 25, 50, 100, 250)
CHOSEN_FIRST: Final = 25
CENTS_PER_DOLLAR: Final = 100
NANOS_PER_CENT: Final = NANOS_PER_DOLLAR // CENTS_PER_DOLLAR
# The provider is asked, up to four times.
PROVIDER_TIMEOUT_S: Final = 20.0
# Events have some kilobytes.
LARGEST_EVENT_BYTES: Final = 512 * 1024


async def show_new(visit: Visit) -> Response:
    return await _form(visit, {}, "", "")


async def begin(visit: Visit) -> Response:
    """Sends the browser on to the page where somebody pays."""
    chosen, other = visit.form.get("amount"), visit.form.get("other").removeprefix("$").replace(",", "")
    payments = _payments(visit)
    try:
        cents = _cents(other or chosen)
        request = pb.CreateCheckoutRequest(
            account_id=visit.who.account_id, amount_cents=cents, operation_id=visit.form.get("form_id")
        )
        created = await payments.CreateCheckout(request, timeout=PROVIDER_TIMEOUT_S)
    except ValueError:
        return await _form(visit, {"other": "An amount in dollars and cents, such as 25 or 12.50."}, chosen, other)
    except LegatoError as error:
        if error.param != "amount_cents":
            raise
        return await _form(visit, {"other": error.message}, chosen, other)
    response = visit.render("payment_continue.html", url=created.url, cents=cents)
    # A form may not lead to another site by a redirect, which the pages' policy forbids; a page may.
    response.headers["refresh"] = f"0;url={created.url}"
    return response


async def show_outcome(visit: Visit) -> Response:
    """Answers whoever comes back from the provider; what was paid is booked by then, or soon."""
    payments = _payments(visit)
    request = pb.GetCheckoutRequest(
        account_id=visit.who.account_id, checkout_id=visit.request.query_params.get("checkout", "")
    )
    if not request.checkout_id:
        return visit.redirect("/credit")
    try:
        found = await payments.GetCheckout(request, timeout=PROVIDER_TIMEOUT_S)
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        # The provider has sent whoever paid, and its event arrives by itself.
        return visit.render("payment_outcome.html", state=pb.CHECKOUT_STATE_PROCESSING, states=pb.CheckoutState)
    if found.state == pb.CHECKOUT_STATE_BOOKED:
        return visit.redirect("/credit", "payment-booked", found.amount_cents * 10)
    return visit.render("payment_outcome.html", state=found.state, states=pb.CheckoutState)


async def receive_event(visit: Visit) -> Response:
    """Passes an event on, as it is: only payments can tell whether the provider has signed it."""
    payments = visit.payments.payments
    payload = await read_body(visit.request, LARGEST_EVENT_BYTES)
    request = pb.ReceiveEventRequest(payload=payload, signature=visit.request.headers.get("stripe-signature", ""))
    received = await payments.ReceiveEvent(request, timeout=PROVIDER_TIMEOUT_S)
    return JSONResponse({"booked": received.is_booked})


async def _form(visit: Visit, problems: dict[str, str], chosen: str, other: str) -> Response:
    options = await _payments(visit).GetPaymentOptions(pb.GetPaymentOptionsRequest())
    least, most = options.least_cents // CENTS_PER_DOLLAR, options.most_cents // CENTS_PER_DOLLAR
    amounts = [amount for amount in AMOUNTS if least <= amount <= most]
    first = CHOSEN_FIRST if CHOSEN_FIRST in amounts else next(iter(amounts), "")
    return visit.render(
        "credit_add.html",
        400 if problems else 200,
        amounts=amounts,
        chosen=chosen or str(first),
        other=other,
        least=least,
        most=most,
        problems=problems,
        is_cancelled="cancelled" in visit.request.query_params,
        form_id=secrets.token_hex(16),
    )


def _payments(visit: Visit) -> "PaymentServiceAsyncStub":
    payments = visit.payments.payments
    if not visit.who.is_owner:
        raise LegatoError(Reason.ROLE_MISSING, "Only owners of the account add credit.")
    return payments


def _cents(given: str) -> int:
    """Returns whole cents; raises ValueError for anything else."""
    cents, rest = divmod(parse_usd(given), NANOS_PER_CENT)
    if rest:
        raise ValueError("less than a cent")
    return cents
