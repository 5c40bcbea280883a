"""The part of the fakes that is PaymentService: one checkout, whose state a test sets."""

from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from protos.metering.v1 import metering_pb2, statements_pb2
from protos.payments.v1 import payments_pb2 as pb
from services.chassis.errors import LegatoError, Reason

DOLLAR = 1_000_000_000
CHECKOUT_ID = "cs_test_1"
PAYMENT_ID = "pi_3QxYzAb12Cd34Ef56Gh78Ij9"
SIGNATURE = "t=1,v1=signed-by-stripe"


class PaymentFakes:
    entries: list[statements_pb2.LedgerEntry]
    balance: metering_pb2.Balance
    checkout_url: str
    checkout_state: "pb.CheckoutState.ValueType"

    def reset_payments(self) -> None:
        self.checkout_url = "https://checkout.stripe.com/c/pay/cs_test_1"
        self.checkout_state = pb.CHECKOUT_STATE_BOOKED

    def book_payments(self) -> None:
        """Books a payment, and a refund of a part of it, as the newest of the month."""
        for seconds, kind, dollars, reference, reason in (
            (2, statements_pb2.LEDGER_ENTRY_KIND_GRANT, 25, PAYMENT_ID, "Card payment"),
            (1, statements_pb2.LEDGER_ENTRY_KIND_ADJUSTMENT, -5, "re_3QxYzAb12Cd34Ef5", f"Refund of {PAYMENT_ID}"),
        ):
            time = Timestamp()
            time.FromDatetime(datetime.now(UTC) - timedelta(seconds=seconds))
            self.balance.balance_nanos += dollars * DOLLAR
            before = self.entries[-1].balance_nanos if self.entries else 0
            self.entries.append(
                statements_pb2.LedgerEntry(
                    entry_id=len(self.entries) + 1,
                    kind=kind,
                    time=time,
                    amount_nanos=dollars * DOLLAR,
                    balance_nanos=before + dollars * DOLLAR,
                    reference_id=f"stripe-{reference}",
                    reason=reason,
                )
            )

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
