"""The part of the fakes that is PaymentService: one checkout, whose state a test sets."""

from typing import Any

from protos.payments.v1 import payments_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from tests.console.metering import PAYMENT_ID

CHECKOUT_ID = "cs_test_1"
SIGNATURE = "t=1,v1=signed-by-stripe"


class PaymentFakes:
    checkout_url: str
    checkout_state: "pb.CheckoutState.ValueType"

    def reset_payments(self) -> None:
        self.checkout_url = "https://checkout.stripe.com/c/pay/cs_test_1"
        self.checkout_state = pb.CHECKOUT_STATE_BOOKED

    def GetPaymentOptions(self, request: Any) -> Any:
        return pb.GetPaymentOptionsResponse(least_cents=500, most_cents=100_000)

    def CreateCheckout(self, request: Any) -> Any:
        if not 500 <= request.amount_cents <= 100_000:
            message = "A payment is between $5 and $1,000."
            raise LegatoError(Reason.REQUEST_INVALID, message, param="amount_cents")
        return pb.CreateCheckoutResponse(checkout_id=CHECKOUT_ID, url=self.checkout_url)

    def GetCheckout(self, request: Any) -> Any:
        if request.checkout_id != CHECKOUT_ID:
            raise LegatoError(Reason.NOT_FOUND, "There is no such payment.")
        return pb.GetCheckoutResponse(state=self.checkout_state, amount_cents=2_500, payment_id=f"stripe-{PAYMENT_ID}")

    def ReceiveEvent(self, request: Any) -> Any:
        if request.signature != SIGNATURE:
            raise LegatoError(Reason.REQUEST_INVALID, "The signature is not valid.")
        return pb.ReceiveEventResponse(is_booked=True)
