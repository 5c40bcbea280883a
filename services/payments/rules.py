"""A payment as the provider has it now, and how metering is told of it.

An event only says that something of a payment has changed. What it is now is read from the provider each time, and
metering books what it does not have yet. So events may come twice, late or in any order.
"""

from typing import Final

import msgspec

from legato_protos.metering.v1 import payment_booking_pb2 as pb
from services.chassis.money import NANOS_PER_DOLLAR

NANOS_PER_CENT: Final = NANOS_PER_DOLLAR // 100
CURRENCY: Final = "usd"
# Tells apart what is booked for this provider from what operators book.
ID_PREFIX: Final = "stripe-"

_REFUNDS_UNDONE: Final = frozenset({"failed", "canceled"})
# An inquiry takes no money; it may become a dispute that does.
_INQUIRIES: Final = frozenset({"warning_needs_response", "warning_under_review", "warning_closed", "prevented"})


class Return(msgspec.Struct, frozen=True):
    """A refund or a dispute, with the names that the provider uses."""

    id: str
    amount: int
    currency: str
    created: int
    # Of a refund, absent while it is not known.
    status: str | None = None


class Payment(msgspec.Struct, frozen=True):
    id: str
    account_id: str
    received_cents: int
    currency: str
    refunds: tuple[Return, ...] = ()
    disputes: tuple[Return, ...] = ()


class UnsupportedCurrency(Exception):
    """Money of another currency: it is not known how much credit it is."""


def to_booking(payment: Payment) -> pb.BookPaymentRequest:
    """Returns what metering is to book, exactly."""
    returned: list[tuple[int, pb.PaymentReturn]] = []
    for refund in payment.refunds:
        is_restored = refund.status in _REFUNDS_UNDONE
        returned.append((refund.created, _return(payment, refund, "Refund", is_restored, "Refund failed")))
    for dispute in payment.disputes:
        if dispute.status not in _INQUIRIES:
            is_restored = dispute.status == "won"
            returned.append((dispute.created, _return(payment, dispute, "Dispute", is_restored, "Dispute won")))
    _require_dollars(payment.currency)
    return pb.BookPaymentRequest(
        account_id=payment.account_id,
        payment_id=ID_PREFIX + payment.id,
        paid_nanos=payment.received_cents * NANOS_PER_CENT,
        reason="Card payment",
        returns=[each for _, each in sorted(returned, key=lambda pair: (pair[0], pair[1].return_id))],
    )


def _return(payment: Payment, returned: Return, what: str, is_restored: bool, restored_what: str) -> pb.PaymentReturn:
    _require_dollars(returned.currency)
    return pb.PaymentReturn(
        return_id=ID_PREFIX + returned.id,
        amount_nanos=returned.amount * NANOS_PER_CENT,
        reason=f"{what} of {payment.id}",
        is_restored=is_restored,
        restored_reason=f"{restored_what}: {payment.id}",
    )


def _require_dollars(currency: str) -> None:
    if currency != CURRENCY:
        raise UnsupportedCurrency


class _EventObject(msgspec.Struct, frozen=True):
    payment_intent: str | None = None


class _EventData(msgspec.Struct, frozen=True):
    object: _EventObject


class Event(msgspec.Struct, frozen=True):
    """The part of an event that is used: the rest is read from the provider."""

    type: str
    data: _EventData
    # Set where it is about an account of another platform, which uses the same webhook.
    account: str | None = None

    @property
    def payment_id(self) -> str | None:
        """Returns the payment that it is about; None: it changes no credit."""
        is_ours = self.type in EVENTS and not self.account
        return self.data.object.payment_intent if is_ours else None


EVENTS: Final = frozenset(
    {
        "checkout.session.completed",
        "checkout.session.async_payment_succeeded",
        "charge.refunded",
        "charge.refund.updated",
        "refund.created",
        "refund.updated",
        "refund.failed",
        "charge.dispute.created",
        "charge.dispute.updated",
        "charge.dispute.closed",
        "charge.dispute.funds_withdrawn",
        "charge.dispute.funds_reinstated",
    }
)  # fmt: skip

parse_event: Final = msgspec.json.Decoder(Event).decode
