"""A record for the audit log: a change of an account, other than by chatting and paying."""

from typing import Final, Literal, NamedTuple, TypeVar

import msgspec

from services.metering.ledger.records import Operation

AnswerT = TypeVar("AnswerT")
ChangeAction = Literal["spend_limits.changed", "low_balance.changed"]


class ChangedBy(NamedTuple):
    user_id: str
    session_id: str


# It has no users.
COMMAND_LINE: Final = ChangedBy("", "")


class AttributedOperation(Operation[AnswerT], frozen=True, kw_only=True):
    """An operation of which the audit log tells by whom it was."""

    changed_by: ChangedBy = COMMAND_LINE


class AccountChange(msgspec.Struct, frozen=True):
    """Fields are the table's columns, after its id."""

    action: ChangeAction
    account_id: str
    # Empty: the account as a whole.
    key_id: str
    user_id: str
    session_id: str
    recorded_at_us: int
