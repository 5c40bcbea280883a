"""Books card payments: a grant for what was paid, adjustments for what was returned."""

from legato_protos.metering.v1 import payment_booking_pb2 as pb
from legato_protos.metering.v1 import payment_booking_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import LARGEST_BOOKING_NANOS
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.metering.credit import messages
from services.metering.credit.batch import Writer
from services.metering.credit.messages import LONGEST_REASON
from services.metering.credit.records import CreditOperation, Grant, RestorePayment, ReturnPayment
from services.metering.credit.store.accounts import has_account, open_account
from services.metering.messages import checked_id, invalid

RESTORED_SUFFIX = "-restored"


class PaymentBookingServicer(payment_booking_pb2_grpc.PaymentBookingServiceServicer):
    def __init__(self, database: Database, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def OpenAccount(self, request: pb.OpenAccountRequest, context: Context) -> pb.OpenAccountResponse:
        account_id = checked_id(request.account_id, "account_id")
        await self._database.write(open_account, account_id)
        return pb.OpenAccountResponse()

    async def BookPayment(self, request: pb.BookPaymentRequest, context: Context) -> pb.BookPaymentResponse:
        """Books in the order in which money moved. Each booking has its own id, so what an earlier call has booked is
        left as it is, and a call that ends half-way is completed by its repetition."""
        bookings, balance = to_bookings(request), None
        # Accounts never go away.
        if not await self._database.read(has_account, request.account_id):
            raise LegatoError(Reason.NOT_FOUND, Sentence("thing_unknown", what="account"))
        for operation in bookings:
            balance = await self._writer.submit(operation, messages.from_account)
        return pb.BookPaymentResponse(balance=balance)


def to_bookings(request: pb.BookPaymentRequest) -> list[CreditOperation]:
    account_id = checked_id(request.account_id, "account_id")
    bookings: list[CreditOperation] = [
        Grant(
            operation_id=checked_id(request.payment_id, "payment_id"),
            account_id=account_id,
            amount_nanos=_amount(request.paid_nanos, "paid_nanos"),
            reason=_reason(request.reason, "reason"),
        )
    ]
    for each in request.returns:
        return_id = checked_id(each.return_id, "return_id")
        amount_nanos = _amount(each.amount_nanos, "amount_nanos")
        bookings.append(ReturnPayment(return_id, account_id, amount_nanos, _reason(each.reason, "reason")))
        if each.is_restored:
            reason = _reason(each.restored_reason, "restored_reason")
            restored_id = checked_id(return_id + RESTORED_SUFFIX, "return_id")
            bookings.append(RestorePayment(restored_id, account_id, amount_nanos, return_id, reason))
    return bookings


def _amount(given: int, param: str) -> int:
    if not 0 < given <= LARGEST_BOOKING_NANOS:
        raise invalid(Sentence("payment_amount_range"), param)
    return given


def _reason(given: str, param: str) -> str:
    if not 0 < len(given) <= LONGEST_REASON or not given.isprintable():
        raise invalid(Sentence("reason_length", most=LONGEST_REASON), param)
    return given
