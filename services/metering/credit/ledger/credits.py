"""Defines the rules of grants and adjustments."""

from typing import Final

from msgspec.structs import replace

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.ledger.rule_context import Effect, RuleContext
from services.metering.credit.records import AccountBalance, Adjust, CreditOperation, Entry, Grant, Kind

# Far above any account, and far below the limit of the database's integers.
LARGEST_BALANCE_NANOS: Final = 10**18


def grant(operation: Grant, context: RuleContext) -> Effect[AccountBalance]:
    return _credit("grant", operation, operation.reason, context)


def adjust(operation: Adjust, context: RuleContext) -> Effect[AccountBalance]:
    return _credit("adjustment", operation, operation.reason, context)


def _credit(kind: Kind, operation: CreditOperation, reason: str | None, context: RuleContext) -> Effect[AccountBalance]:
    account, booked, amount_nanos = context.account, context.booked, operation.amount_nanos
    if booked is not None:
        if (booked.account_id, booked.customer_nanos) != (operation.account_id, amount_nanos):
            raise LegatoError(Reason.REQUEST_INVALID, Sentence("id_used_before", kind=kind))
        return Effect(account)
    if account.free_nanos + amount_nanos < 0:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("balance_too_small"), param="amount_nanos")
    if account.balance_nanos + amount_nanos > LARGEST_BALANCE_NANOS:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("balance_too_large"), param="amount_nanos")
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
