"""Defines the rules of credit: given an account, a hold and an operation, the answer and the changes.

The rules are pure: no clock, no database, no required order of calls. Any operation may come twice, late, out of order
or contradict an earlier one, and has a definite answer. A refusal is raised, and changes nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from services.chassis.errors import LegatoError, Reason
from services.metering import credit, holds
from services.metering.operations import (
    Adjust,
    AnswerT,
    Checkpoint,
    Extend,
    Grant,
    Operation,
    Reserve,
    Settle,
    Sweep,
    Void,
)
from services.metering.rule_context import Effect, RuleContext


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
    Grant: credit.grant,
    Adjust: credit.adjust,
}
