"""The context of a rule, and what a rule answers and changes."""

from collections.abc import Mapping
from typing import Generic

import msgspec

from services.metering.credit.ledger.spend import NO_LIMITS, Spend, SpendRoom
from services.metering.credit.prices import Prices
from services.metering.credit.records import AccountBalance, AccountChange, AnswerT, Claim, Entry, Hold, OwedChange


class RuleContext(msgspec.Struct, frozen=True):
    """The state that an operation is applied to."""

    account: AccountBalance
    hold: Hold | None
    # The earlier grant or adjustment with the same id.
    booked: Entry | None
    prices: Prices
    now_us: int
    # How long a hold lives before it is swept.
    life_us: int
    # By their ids, for rules that set limits: the spends with limits, and those that get their first ones.
    spends: Mapping[str, Spend]
    new_spends: Mapping[str, Spend]
    # The claim on a Reserve's Idempotency-Key, and the hold of the request that owns it.
    claim: Claim | None = None
    claimant: Hold | None = None
    # The key's live holds; counted only if the Reserve has a limit.
    live_holds: int = 0
    # What the spend limits of the account and of the request's key leave.
    room: SpendRoom = NO_LIMITS
    # What a RestorePayment reverses, and how much of it the customer was found to owe.
    returned: Entry | None = None
    returned_owed_nanos: int = 0


class Effect(msgspec.Struct, Generic[AnswerT], frozen=True):
    """The answer and the changes; None: unchanged."""

    answer: AnswerT
    account: AccountBalance | None = None
    hold: Hold | None = None
    entry: Entry | None = None
    claim: Claim | None = None
    # The entry that takes what is owed from the credit that the operation has made free; and what that, or `entry`,
    # adds to what is owed.
    repayment: Entry | None = None
    owed: OwedChange | None = None
    # The spends whose limits are set, or lowered by that.
    spends: tuple[Spend, ...] = ()
    # For the audit log.
    change: AccountChange | None = None
