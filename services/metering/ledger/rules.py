"""The rules of the ledger: one function for each operation."""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from services.chassis.errors import LegatoError, Reason
from services.metering.ledger import holds
from services.metering.ledger.operations import (
    Adjust,
    AnswerT,
    Checkpoint,
    CreditOperation,
    Extend,
    Grant,
    Operation,
    Reserve,
    Settle,
    Sweep,
    Void,
)
from services.metering.ledger.records import AccountBalance, Entry, Kind
from services.metering.ledger.rule_context import Effect, RuleContext

# Far above any account, and far below the limit of the database's integers.
LARGEST_BALANCE_NANOS: Final = 10**18


def grant(operation: Grant, context: RuleContext) -> Effect[AccountBalance]:
    return _credit("grant", operation, None, context)


def adjust(operation: Adjust, context: RuleContext) -> Effect[AccountBalance]:
    return _credit("adjustment", operation, operation.reason, context)


def _credit(kind: Kind, operation: CreditOperation, reason: str | None, context: RuleContext) -> Effect[AccountBalance]:
    account, booked, amount_nanos = context.account, context.booked, operation.amount_nanos
    if booked is not None:
        if (booked.account_id, booked.customer_nanos) != (operation.account_id, amount_nanos):
            raise LegatoError(Reason.REQUEST_INVALID, f"This id was already used for another {kind}.")
        return Effect(account)
    if account.free_nanos + amount_nanos < 0:
        message = "The account's available balance, without holds, is less than that."
        raise LegatoError(Reason.REQUEST_INVALID, message, param="amount_nanos")
    if account.balance_nanos + amount_nanos > LARGEST_BALANCE_NANOS:
        raise LegatoError(
            Reason.REQUEST_INVALID, "The account's balance would exceed the maximum.", param="amount_nanos"
        )
    account = replace(account, balance_nanos=account.balance_nanos + amount_nanos)
    entry = Entry(
        kind=kind,
        request_id=operation.operation_id,
        account_id=operation.account_id,
        customer_nanos=amount_nanos,
        external_nanos=-amount_nanos,
        recorded_at_us=context.now_us,
        reason=reason,
    )
    return Effect(account, account, None, entry)


# Defines the rules of credit: given an account, a hold and an operation, the answer and the changes.
#
# The rules are pure: no clock, no database, no required order of calls. Any operation may come twice, late, out of
# order or contradict an earlier one, and has a definite answer. A refusal is raised, and changes nothing.


def apply(operation: Operation[AnswerT], context: RuleContext) -> Effect[AnswerT]:
    if context.hold is not None and context.hold.account_id != operation.account_id:
        raise LegatoError(Reason.REQUEST_INVALID, "The request belongs to another account.", param="account_id")
    return _RULES[type(operation)](operation, context)


_RULES: Final[dict[type[Any], Callable[[Any, RuleContext], Effect[Any]]]] = {
    Reserve: holds.reserve,
    Extend: holds.extend,
    Checkpoint: holds.checkpoint,
    Settle: holds.settle,
    Void: holds.void,
    Sweep: holds.sweep,
    Grant: grant,
    Adjust: adjust,
}
