"""The input and the output of a rule."""

from typing import Final, Generic, NamedTuple

from services.chassis.errors import LegatoError, Reason
from services.metering.ledger.records import (
    HOUR_US,
    AccountBalance,
    AnswerT,
    Basis,
    Claim,
    End,
    Entry,
    Hold,
    IdempotencyClaim,
    Kind,
    Prices,
    Usage,
)


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


# Reasons of losses: neither the hold nor free credit covered it; or its delivery is unconfirmed.
BEYOND_CREDIT: Final = "beyond_credit"
NOT_CONFIRMED: Final = "not_confirmed"


_NOTHING: Final = Usage()


def booking(
    kind: Kind,
    hold: Hold,
    usage: Usage,
    cost_nanos: int,
    charge_nanos: int,
    basis: Basis,
    end: End,
    context: RuleContext,
) -> Entry:
    """Builds the entry that a charge adds to the request's earlier ones."""
    counted = hold.usage if hold.counted_hour_us is not None else _NOTHING
    hour_us = hold.counted_hour_us
    loss_nanos = cost_nanos - hold.booked_nanos - charge_nanos
    return Entry(
        kind=kind,
        request_id=hold.request_id,
        account_id=hold.account_id,
        customer_nanos=-charge_nanos,
        revenue_nanos=cost_nanos - hold.booked_nanos,
        loss_nanos=-loss_nanos,
        recorded_at_us=context.now_us,
        key_id=hold.key_id,
        class_id=hold.class_id,
        price_version=hold.price_version,
        hour_us=context.now_us - context.now_us % HOUR_US if hour_us is None else hour_us,
        requests=1 if hour_us is None else 0,
        prompt_tokens=usage.prompt_tokens - counted.prompt_tokens,
        cached_tokens=usage.cached_tokens - counted.cached_tokens,
        completion_tokens=usage.completion_tokens - counted.completion_tokens,
        basis=basis,
        end=end,
        reason=BEYOND_CREDIT if loss_nanos else None,
    )


# Decides whether a request may use its Idempotency-Key: pure rules, like the ledger's.
#
# A key belongs to the request that reserved credit under it. Only a request that was voided, with nothing delivered,
# frees it before it expires: one that was swept may still be charged.

CLAIM_LIFE_US: Final = 24 * HOUR_US


def refuse_repeat(asked: IdempotencyClaim, found: Claim | None, claimant: Hold | None, now_us: int) -> None:
    """Raises if the key is in use; `claimant` is its owner's hold."""
    if found is None or found.claimed_at_us < now_us - CLAIM_LIFE_US:
        return
    if claimant is not None and claimant.state == "void":
        return
    if found.body_digest != asked.body_digest:
        message = "This Idempotency-Key was used for another request. Use a new key for each request."
        raise LegatoError(Reason.IDEMPOTENCY_KEY_REUSED, message, param="Idempotency-Key")
    raise LegatoError(
        Reason.REQUEST_REPEATED,
        f"A request with this Idempotency-Key is running or has ended: {found.request_id}.",
        original_request_id=found.request_id,
    )
