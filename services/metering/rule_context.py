"""The input and the output of a rule."""

from typing import Generic, NamedTuple

from services.metering.operations import AnswerT
from services.metering.prices import Prices
from services.metering.records import AccountBalance, Claim, Entry, Hold


class RuleContext(NamedTuple):
    """The state that an operation is applied to."""

    account: AccountBalance
    hold: Hold | None
    # The earlier grant or adjustment with the same id.
    booked: Entry | None
    prices: Prices
    now_us: int
    # How long a hold lives before it is swept.
    life_us: int
    # The claim on a Reserve's Idempotency-Key, and the hold of the request that owns it.
    claim: Claim | None = None
    claimant: Hold | None = None
    # The key's live holds; counted only if the Reserve has a limit.
    live_holds: int = 0


class Effect(NamedTuple, Generic[AnswerT]):
    """The answer and the changes; None: unchanged."""

    answer: AnswerT
    account: AccountBalance | None = None
    hold: Hold | None = None
    entry: Entry | None = None
    claim: Claim | None = None
