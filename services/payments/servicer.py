"""Implements the RPCs of payments."""

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from legato_protos.metering.v1.payment_booking_pb2 import OpenAccountRequest
from legato_protos.payments.v1 import payments_pb2 as pb
from legato_protos.payments.v1 import payments_pb2_grpc
from services.chassis.errors import LegatoError, Reason, internal_error
from services.chassis.process import failpoints
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.payments.rules import ID_PREFIX, Payment, UnsupportedCurrency, parse_event, to_booking
from services.payments.stripe_client import StripeClient, no_payment

if TYPE_CHECKING:
    from legato_protos.metering.v1.payment_booking_pb2_grpc import PaymentBookingServiceAsyncStub

LARGEST_EVENT_BYTES: Final = 1024 * 1024
CENTS_PER_DOLLAR: Final = 100
# Less than Stripe waits for the answer to an event.
METERING_TIMEOUT_S: Final = 5.0

_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CHECKOUT_ID: Final = re.compile(r"[A-Za-z0-9_]{1,255}")

_STATES: Final = {
    "open": pb.CHECKOUT_STATE_OPEN,
    "complete": pb.CHECKOUT_STATE_PROCESSING,
    "expired": pb.CHECKOUT_STATE_EXPIRED,
}


class PaymentServicer(payments_pb2_grpc.PaymentServiceServicer):
    def __init__(
        self,
        stripe: StripeClient,
        metering: "PaymentBookingServiceAsyncStub",
        return_origin: str,
        least_usd: int,
        most_usd: int,
        log: Log,
    ) -> None:
        self._stripe = stripe
        self._metering = metering
        self._return_origin = return_origin
        self._least_cents = least_usd * CENTS_PER_DOLLAR
        self._most_cents = most_usd * CENTS_PER_DOLLAR
        self._log = log
        # For metrics: events by what became of them.
        self.events: defaultdict[str, int] = defaultdict(int)

    async def GetPaymentOptions(
        self, request: pb.GetPaymentOptionsRequest, context: Context
    ) -> pb.GetPaymentOptionsResponse:
        return pb.GetPaymentOptionsResponse(least_cents=self._least_cents, most_cents=self._most_cents)

    async def CreateCheckout(self, request: pb.CreateCheckoutRequest, context: Context) -> pb.CreateCheckoutResponse:
        account_id, operation_id = _checked_id(request.account_id), _checked_id(request.operation_id)
        cents = request.amount_cents
        if not self._least_cents <= cents <= self._most_cents:
            least, most = self._least_cents // CENTS_PER_DOLLAR, self._most_cents // CENTS_PER_DOLLAR
            sentence = Sentence("payment_range", least=least, most=most)
            raise LegatoError(Reason.REQUEST_INVALID, sentence, param="amount_cents")
        # What is paid for an account that metering does not know, such as another service's, is not booked.
        await self._open_account(account_id)
        key = f"legato-{account_id}-{operation_id}-{cents}"
        checkout = await self._stripe.create_checkout(account_id, cents, self._return_origin, key)
        self._log.info("checkout.created", account_id=account_id, operation_id=operation_id)
        return pb.CreateCheckoutResponse(checkout_id=checkout.id, url=checkout.url)

    async def GetCheckout(self, request: pb.GetCheckoutRequest, context: Context) -> pb.GetCheckoutResponse:
        if not _CHECKOUT_ID.fullmatch(request.checkout_id):
            raise no_payment()
        checkout = await self._stripe.read_checkout(request.checkout_id)
        if not checkout.account_id or checkout.account_id != request.account_id:
            raise no_payment()
        await self._open_account(checkout.account_id)
        is_booked = checkout.is_paid and checkout.payment_id is not None and await self._book(checkout.payment_id)
        return pb.GetCheckoutResponse(
            state=pb.CHECKOUT_STATE_BOOKED
            if is_booked
            else _STATES.get(checkout.status, pb.CHECKOUT_STATE_UNSPECIFIED),
            amount_cents=checkout.cents,
            payment_id=ID_PREFIX + checkout.payment_id if checkout.payment_id else "",
        )

    async def ReceiveEvent(self, request: pb.ReceiveEventRequest, context: Context) -> pb.ReceiveEventResponse:
        """Returns when everything is booked. After any error Stripe sends the event again, for three days."""
        if len(request.payload) > LARGEST_EVENT_BYTES or not self._stripe.is_signed(request.payload, request.signature):
            self.events["forged"] += 1
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("signature_invalid"))
        try:
            is_booked = await self._receive(request.payload)
        except BaseException:
            self.events["failed"] += 1
            raise
        self.events["booked" if is_booked else "ignored"] += 1
        return pb.ReceiveEventResponse(is_booked=is_booked)

    async def ListPayments(self, request: pb.ListPaymentsRequest, context: Context) -> pb.ListPaymentsResponse:
        found = await self._stripe.list_payments(request.start_time.seconds)
        listed = [
            pb.ListedPayment(payment_id=each.id, account_id=each.account_id, amount_cents=each.received_cents)
            for each in found
        ]
        return pb.ListPaymentsResponse(payments=listed)

    async def BookPayment(self, request: pb.BookPaymentRequest, context: Context) -> pb.BookPaymentResponse:
        if not _CHECKOUT_ID.fullmatch(request.payment_id):
            raise no_payment()
        payment = await self._stripe.read_payment(request.payment_id)
        if payment is not None and request.opens_account:
            await self._open_account(payment.account_id)
        return pb.BookPaymentResponse(is_booked=await self._book_read(payment))

    async def _open_account(self, account_id: str) -> None:
        await self._metering.OpenAccount(OpenAccountRequest(account_id=account_id), timeout=METERING_TIMEOUT_S)

    async def _receive(self, payload: bytes) -> bool:
        try:
            payment_id = parse_event(payload).payment_id
        except msgspec.DecodeError:
            # It is signed, so it is an event, though of a form that none of ours has.
            return False
        return payment_id is not None and await self._book(payment_id)

    async def _book(self, payment_id: str) -> bool:
        """Books a payment as it is now; returns False if it is none of ours, or nothing was paid."""
        return await self._book_read(await self._stripe.read_payment(payment_id))

    async def _book_read(self, payment: Payment | None) -> bool:
        if payment is None:
            return False
        payment_id = payment.id
        try:
            await self._metering.BookPayment(to_booking(payment), timeout=METERING_TIMEOUT_S)
        except UnsupportedCurrency as error:
            self._log.failure("payment.not_booked", error, account_id=payment.account_id, operation_id=payment_id)
            raise internal_error() from None
        except LegatoError as error:
            if error.reason is Reason.UNAVAILABLE:
                raise
            self._log.warning(
                "payment.not_booked",
                account_id=payment.account_id,
                operation_id=payment_id,
                reason=error.reason.value,
            )
            raise internal_error() from None
        failpoints.hit("payments.booked")
        self._log.info("payment.booked", account_id=payment.account_id, operation_id=payment_id)
        return True


def _checked_id(given: str) -> str:
    if not _ID.fullmatch(given):
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("id_invalid"))
    return given
