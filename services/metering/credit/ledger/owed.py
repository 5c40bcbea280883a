"""Defines the rules of payments that are returned: what an account owes for them, and when it is taken.

A refund or a dispute takes the credit that is free. The rest was spent, or is held by running requests: it is our loss
for now, and the account owes it. Whatever makes credit free afterwards (a hold that ends, a grant, an adjustment) pays
that first, in an entry of its own that reverses as much of the loss. So an account that owes anything has no free
credit, and its new requests wait or are refused.
"""

from typing import Any, Final

from msgspec.structs import replace

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.ledger.rule_context import Effect, RuleContext
from services.metering.credit.records import (
    AccountBalance,
    AnswerT,
    CreditOperation,
    Entry,
    Grant,
    Operation,
    OwedChange,
    RestorePayment,
    ReturnPayment,
)

REPAID: Final = "Owed for a refund or dispute"
# No id of a caller has a dot: no other adjustment has the id of a repayment.
REPAYMENT_PREFIX: Final = "repayment."


def return_payment(operation: ReturnPayment, context: RuleContext) -> Effect[AccountBalance]:
    """Takes back what is free of the amount. The rest is owed."""
    account, booked, amount_nanos = context.account, context.booked, operation.amount_nanos
    if booked is not None:
        _require_same(booked, operation.account_id, amount_nanos)
        return Effect(account)
    taken_nanos = min(amount_nanos, account.free_nanos)
    owed_nanos = amount_nanos - taken_nanos
    account = replace(
        account, balance_nanos=account.balance_nanos - taken_nanos, owed_nanos=account.owed_nanos + owed_nanos
    )
    entry = Entry(
        kind="adjustment",
        request_id=operation.operation_id,
        account_id=operation.account_id,
        customer_nanos=-taken_nanos,
        loss_nanos=-owed_nanos,
        external_nanos=amount_nanos,
        recorded_at_us=context.now_us,
        reason=operation.reason,
    )
    owed = _owed_by(entry) if owed_nanos else None
    return Effect(account, account, None, entry, owed=owed)


def restore_payment(operation: RestorePayment, context: RuleContext) -> Effect[AccountBalance]:
    """Gives back what was returned, and so pays first what is owed. A loss of a return that was never owed, as before
    that was recorded, is reversed instead."""
    account, booked, returned, amount_nanos = (
        context.account,
        context.booked,
        context.returned,
        operation.amount_nanos,
    )
    if booked is not None:
        _require_same(booked, operation.account_id, -amount_nanos)
        return Effect(account)
    if returned is None:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("thing_unknown", what="return"), param="return_id")
    _require_same(returned, operation.account_id, amount_nanos)
    lost_nanos = -returned.loss_nanos - context.returned_owed_nanos
    account = replace(account, balance_nanos=account.balance_nanos + amount_nanos - lost_nanos)
    entry = Entry(
        kind="adjustment",
        request_id=operation.operation_id,
        account_id=operation.account_id,
        customer_nanos=amount_nanos - lost_nanos,
        loss_nanos=lost_nanos,
        external_nanos=-amount_nanos,
        recorded_at_us=context.now_us,
        reason=operation.reason,
    )
    return Effect(account, account, None, entry)


def collect(operation: Operation[AnswerT], effect: Effect[AnswerT], context: RuleContext) -> Effect[AnswerT]:
    """Takes what is owed from the credit that an operation has made free. It does so once: its repetition frees
    nothing."""
    account = effect.account
    if account is None or account.uncommitted_nanos <= context.account.uncommitted_nanos:
        return effect
    taken_nanos = min(account.owed_nanos, account.uncommitted_nanos)
    account = replace(
        account,
        balance_nanos=account.balance_nanos - taken_nanos,
        owed_nanos=account.owed_nanos - taken_nanos,
    )
    repayment = Entry(
        kind="adjustment",
        request_id=_repayment_id(operation),
        account_id=operation.account_id,
        customer_nanos=-taken_nanos,
        loss_nanos=taken_nanos,
        recorded_at_us=context.now_us,
        reason=REPAID,
    )
    answer: Any = account if isinstance(operation, CreditOperation) else effect.answer
    return replace(effect, answer=answer, account=account, repayment=repayment, owed=_owed_by(repayment))


def _owed_by(entry: Entry) -> OwedChange:
    return OwedChange(entry.request_id, entry.account_id, -entry.loss_nanos, entry.recorded_at_us)


def _repayment_id(operation: Any) -> str:
    """Names the operation that made credit free. A request does that once, whichever of its operations it is."""
    if isinstance(operation, CreditOperation):
        kind = "grant" if isinstance(operation, Grant) else "adjustment"
        return f"{REPAYMENT_PREFIX}{kind}.{operation.operation_id}"
    return f"{REPAYMENT_PREFIX}request.{operation.request_id}"


def _require_same(booked: Entry, account_id: str, external_nanos: int) -> None:
    if (booked.account_id, booked.external_nanos) != (account_id, external_nanos):
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("id_used_before", kind="adjustment"))
