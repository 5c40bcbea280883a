"""Applies the rules of credit: given an account, a hold and an operation, the answer and the changes.

The rules are pure: no clock, no database, no required order of calls. Any operation may come twice, late, out of order
or contradict an earlier one, and has a definite answer. A refusal is raised, and changes nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.metering.credit.ledger import credits, holds, owed, spend_limits
from services.metering.credit.ledger.rule_context import Effect, RuleContext
from services.metering.credit.ledger.spend import InheritSpendLimits, SetSpendLimits
from services.metering.credit.records import (
    Adjust,
    AnswerT,
    Checkpoint,
    Extend,
    Grant,
    Operation,
    Reserve,
    RestorePayment,
    ReturnPayment,
    Settle,
    Sweep,
    Void,
)


def apply(operation: Operation[AnswerT], context: RuleContext) -> Effect[AnswerT]:
    if context.hold is not None and context.hold.account_id != operation.account_id:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("request_of_another_account"), param="account_id")
    effect: Effect[AnswerT] = _RULES[type(operation)](operation, context)
    return owed.collect(operation, effect, context) if context.account.owed_nanos else effect


_RULES: Final[dict[type[Any], Callable[[Any, RuleContext], Effect[Any]]]] = {
    Reserve: holds.reserve,
    Extend: holds.extend,
    Checkpoint: holds.checkpoint,
    Settle: holds.settle,
    Void: holds.void,
    Sweep: holds.sweep,
    Grant: credits.grant,
    Adjust: credits.adjust,
    ReturnPayment: owed.return_payment,
    RestorePayment: owed.restore_payment,
    SetSpendLimits: spend_limits.set_limits,
    InheritSpendLimits: spend_limits.inherit_limits,
}
