"""Credit by card: the choice of an amount, the way to the payment provider and back, and the provider's events."""

from typing import TYPE_CHECKING, Final

from starlette.responses import JSONResponse, Response

from console.display.language import _
from console.display.sentences import in_words
from console.services import if_available
from console.web.forms import Refusal, parse_dollars, read_body
from console.web.refusals import shows_again
from console.web.visit import Visit
from legato_protos.payments.v1 import payments_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import NANOS_PER_DOLLAR
from services.chassis.sentence import Sentence

if TYPE_CHECKING:
    from legato_protos.payments.v1.payments_pb2_grpc import PaymentServiceAsyncStub


# Dollars; those that the service allows are offered.
AMOUNTS: Final = (10, 25, 50, 100, 250)
CHOSEN_FIRST: Final = 25
CENTS_PER_DOLLAR: Final = 100
NANOS_PER_CENT: Final = NANOS_PER_DOLLAR // CENTS_PER_DOLLAR
# The provider is asked, up to four times.
PROVIDER_TIMEOUT_S: Final = 20.0
# Events have some kilobytes.
LARGEST_EVENT_BYTES: Final = 512 * 1024


async def show_new(visit: Visit, refusal: Refusal | None = None) -> Response:
    options = await _payments(visit).GetPaymentOptions(pb.GetPaymentOptionsRequest())
    least, most = options.least_cents // CENTS_PER_DOLLAR, options.most_cents // CENTS_PER_DOLLAR
    amounts = [amount for amount in AMOUNTS if least <= amount <= most]
    first = CHOSEN_FIRST if CHOSEN_FIRST in amounts else next(iter(amounts), "")
    return visit.render(
        "credit_add.html",
        refusal=refusal,
        amounts=amounts,
        chosen=visit.form.get("amount") or str(first),
        least=least,
        most=most,
        is_cancelled="cancelled" in visit.query,
    )


@shows_again(show_new, reasons=())
async def begin(visit: Visit) -> Response:
    """Sends the browser on to the page where the user pays."""
    payments = _payments(visit)
    try:
        cents = _cents(visit.form.get("other") or visit.form.get("amount"))
    except ValueError:
        raise Refusal({"other": _("An amount in dollars and cents, such as 25 or 12.50.")}) from None
    request = pb.CreateCheckoutRequest(
        account_id=visit.account_id, amount_cents=cents, operation_id=visit.form.get("form_id")
    )
    try:
        created = await payments.CreateCheckout(request, timeout=PROVIDER_TIMEOUT_S)
    except LegatoError as error:
        if error.param != "amount_cents":
            raise
        raise Refusal({"other": in_words(error.sentence)}) from None
    response = visit.render("payment_continue.html", url=created.url, cents=cents)
    # A form may not lead to another site by a redirect, which the pages' policy forbids; a page may.
    response.headers["refresh"] = f"0;url={created.url}"
    return response


async def show_outcome(visit: Visit) -> Response:
    """Answers a user who comes back from the provider; what was paid is booked by then, or soon."""
    payments = _payments(visit)
    request = pb.GetCheckoutRequest(account_id=visit.account_id, checkout_id=visit.query.get("checkout", ""))
    if not request.checkout_id:
        return visit.redirect("/credit")
    found = await if_available(payments.GetCheckout(request, timeout=PROVIDER_TIMEOUT_S))
    if found is not None and found.state == pb.CHECKOUT_STATE_BOOKED:
        return visit.redirect("/credit", "payment-booked", found.amount_cents * 10)
    # If payments does not answer: the provider's event arrives by itself.
    state = pb.CHECKOUT_STATE_PROCESSING if found is None else found.state
    return visit.render("payment_outcome.html", state=state, states=pb.CheckoutState)


async def receive_event(visit: Visit) -> Response:
    """Passes an event on, as it is: only payments can tell whether the provider has signed it."""
    payments = visit.payments.payments
    payload = await read_body(visit.request, LARGEST_EVENT_BYTES)
    request = pb.ReceiveEventRequest(payload=payload, signature=visit.request.headers.get("stripe-signature", ""))
    received = await payments.ReceiveEvent(request, timeout=PROVIDER_TIMEOUT_S)
    return JSONResponse({"booked": received.is_booked})


def _payments(visit: Visit) -> "PaymentServiceAsyncStub":
    payments = visit.payments.payments
    if not visit.who.is_owner:
        raise LegatoError(Reason.ROLE_MISSING, Sentence("credit_by_owners"))
    return payments


def _cents(given: str) -> int:
    """Returns whole cents; raises ValueError for anything else."""
    cents, rest = divmod(parse_dollars(given), NANOS_PER_CENT)
    if rest:
        raise ValueError("less than a cent")
    return cents
