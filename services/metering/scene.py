"""What an operation on the books finds, and what it leaves."""

from typing import Generic, NamedTuple

from services.metering.operations import AnswerT
from services.metering.prices import Prices
from services.metering.records import AccountBalance, Claim, Entry, Hold


class RuleContext(NamedTuple):
    """What an operation finds."""

    account: AccountBalance
    hold: Hold | None
    # The booking of an earlier grant or adjustment under the same id.
    booked: Entry | None
    prices: Prices
    now_us: int
    # How long a hold lives before it is swept.
    life_us: int
    # Who has the Idempotency-Key that a Reserve claims, and that request's hold.
    claim: Claim | None = None
    claimant: Hold | None = None
    # How many holds of the key live; counted only where a Reserve says how many may.
    live_holds: int = 0


class Effect(NamedTuple, Generic[AnswerT]):
    """None: as it was."""

    answer: AnswerT
    account: AccountBalance | None = None
    hold: Hold | None = None
    entry: Entry | None = None
    claim: Claim | None = None
