"""Credit that an operator books for an account: grants, and adjustments with a reason."""

from typing import Final

from starlette.responses import Response

from console.pages.operator.accounts import path_of, show_one
from console.web.forms import Refusal, Rules
from console.web.refusals import shows_again
from console.web.visit import Visit
from protos.auth.v1 import users_pb2
from protos.metering.v1 import metering_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.money import LARGEST_BOOKING_NANOS, parse_usd

LONGEST_REASON: Final = 200
UNKNOWN_OUTCOME: Final = (
    "It is not known whether this was booked: a service did not answer in time. Send the form again: it has the "
    "same booking, which counts once."
)


def read_booking(visit: Visit) -> pb.GrantCreditsRequest | pb.AdjustCreditsRequest:
    """Reads the form. It has the id of its booking: however often it is sent, it is booked once."""
    form, amount_nanos = visit.form, 0
    kind, reason = form.get("kind"), form.get("reason")
    with Rules(form) as rules:
        try:
            amount_nanos = parse_usd(form.get("amount").replace("\N{MINUS SIGN}", "-"))
        except ValueError:
            rules.problems["amount"] = "An amount in dollars with up to nine decimals, such as 5.00."
        if kind not in ("grant", "adjustment"):
            rules.problems["kind"] = "Choose a grant or an adjustment."
        elif not rules.problems and kind == "grant" and amount_nanos <= 0:
            rules.problems["amount"] = "A grant is more than zero. To take credit away, choose an adjustment."
        elif not rules.problems and not amount_nanos:
            rules.problems["amount"] = "An adjustment is not zero."
        rules.require(abs(amount_nanos) <= LARGEST_BOOKING_NANOS, "amount", "At most a million dollars at once.")
        if not rules.problems:
            rules.require(form.get("amount_again") == form.get("amount"), "amount_again", "The two amounts differ.")
        if kind == "adjustment":
            is_given = 1 <= len(reason) <= LONGEST_REASON
            rules.require(is_given, "reason", "An adjustment needs a reason, which the ledger keeps.")
    grant = pb.GrantCreditsRequest(
        operation_id=form.get("operation_id"), account_id=visit.path_value("account_id"), amount_nanos=amount_nanos
    )
    if kind == "grant":
        return grant
    return pb.AdjustCreditsRequest(
        operation_id=grant.operation_id, account_id=grant.account_id, amount_nanos=amount_nanos, reason=reason
    )


@shows_again(
    show_one,
    "amount",
    reasons=(Reason.REQUEST_INVALID, Reason.NOT_FOUND, Reason.CREDITS_EXHAUSTED, Reason.CREDITS_HELD),
)
async def book(visit: Visit) -> Response:
    booking = read_booking(visit)
    # Before the audit log is written: what was asked for is then noted once, when it is done.
    visit.require_step_up()
    is_grant = isinstance(booking, pb.GrantCreditsRequest)
    noted = users_pb2.RecordOperatorActionRequest(
        action=users_pb2.OPERATOR_ACTION_GRANT_CREDIT if is_grant else users_pb2.OPERATOR_ACTION_ADJUST_CREDIT,
        account_id=booking.account_id,
        object_id=f"{visit.who.user.user_id}-{booking.operation_id}",
    )
    try:
        await visit.auth.audit.RecordOperatorAction(noted)
        if isinstance(booking, pb.GrantCreditsRequest):
            await visit.metering.credit_admin.GrantCredits(booking)
        else:
            await visit.metering.credit_admin.AdjustCredits(booking)
    except LegatoError as error:
        if error.reason is not Reason.UNAVAILABLE:
            raise
        raise Refusal({"outcome": UNKNOWN_OUTCOME}, status=503) from None
    return visit.redirect(path_of(visit), "credit-booked")
