"""Defines the rules of one request's credit: held, extended, settled, voided, swept."""

from typing import Final

from msgspec.structs import replace

from services.chassis.errors import LegatoError, Reason, credits_held
from services.chassis.money import format_usd
from services.chassis.sentence import Sentence
from services.metering.credit.calendar import next_month_us
from services.metering.credit.ledger.rule_context import Effect, RuleContext
from services.metering.credit.prices import Price
from services.metering.credit.records import (
    DAY_US,
    HOUR_US,
    AccountBalance,
    Basis,
    Checkpoint,
    Claim,
    End,
    Entry,
    Extend,
    Extended,
    Hold,
    IdempotencyClaim,
    Kind,
    Reserve,
    Reserved,
    Settle,
    Settled,
    Sweep,
    Swept,
    Void,
)
from services.rules.usage import Usage, named

# Reasons of losses: neither the hold nor free credit covered it; a spend limit kept free credit from covering it; or
# its delivery is unconfirmed.
BEYOND_CREDIT: Final = "beyond_credit"
BEYOND_SPEND_LIMIT: Final = "beyond_spend_limit"
NOT_CONFIRMED: Final = "not_confirmed"


_NOTHING: Final = Usage()

CLAIM_LIFE_US: Final = 24 * HOUR_US
# A month's counters change for so long after its end; then they are final, and the month can be closed.
COUNTED_AFTERWARDS_US: Final = 2 * DAY_US


def charged_hour_us(hold: Hold, now_us: int) -> int:
    """Returns the hour in which a charge counts: that of the request's first one, unless its month is over."""
    hour_us = hold.counted_hour_us
    if hour_us is None or next_month_us(hour_us) + COUNTED_AFTERWARDS_US <= now_us:
        return now_us - now_us % HOUR_US
    return hour_us


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
    is_first = hold.counted_hour_us is None
    counted = _NOTHING if is_first else hold.usage
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
        hour_us=charged_hour_us(hold, context.now_us),
        requests=1 if is_first else 0,
        **named(usage.minus(counted)),
        basis=basis,
        end=end,
        reason=BEYOND_CREDIT if loss_nanos else None,
    )


# How many whole answers an account must have credit for before one is held in full. So its other requests, which begin
# with a slice, find credit for some hundred of those, even if a few whole ones hold too much.
WHOLE_ANSWERS_FREE = 8


class UnmatchedSettlement(LegatoError):
    """A settlement without a hold, or with a voided one: tokens were served without a reservation. The sender must keep
    its record for an investigation, so this is no ordinary refusal."""

    def __init__(self) -> None:
        super().__init__(Reason.NOT_FOUND, Sentence("credit_not_held"))


def reserve(operation: Reserve, context: RuleContext) -> Effect[Reserved]:
    account, hold = context.account, context.hold
    if hold is not None:
        if hold.state != "held":
            raise _resolved()
        free_nanos = context.room.of_free(account.free_nanos)
        answer = Reserved(hold.amount_nanos, free_nanos, hold.price_version, _price_of(hold, context))
        return Effect(answer)
    claim = None
    if operation.claim is not None:
        # Checked before the credit: the first of two may hold all of it.
        _refuse_repeat(operation.claim, context.claim, context.claimant, context.now_us)
        digests = operation.claim.key_digest, operation.claim.body_digest
        claim = Claim(operation.account_id, *digests, operation.request_id, context.now_us)
    if operation.concurrent_requests is not None and context.live_holds >= operation.concurrent_requests:
        raise _too_many_at_once(operation.concurrent_requests)
    version = context.prices.version_at(context.now_us)
    price = context.prices.of_version(version, operation.class_id)
    least_nanos = price.cost_nanos(Usage(operation.prompt_tokens, 0, 1))
    if account.free_nanos < least_nanos:
        raise _too_little_credit(account, least_nanos)
    context.room.refuse(least_nanos, context.now_us)
    free_nanos = context.room.of_free(account.free_nanos)
    amount_nanos = min(_wanted_nanos(operation, price, free_nanos), free_nanos)
    account = replace(account, held_nanos=account.held_nanos + amount_nanos)
    hold = Hold(
        request_id=operation.request_id,
        account_id=operation.account_id,
        key_id=operation.key_id,
        class_id=operation.class_id,
        state="held",
        amount_nanos=amount_nanos,
        price_version=version,
        deadline_at_us=context.now_us + context.life_us,
        reserved_at_us=context.now_us,
        api=operation.api,
    )
    return Effect(Reserved(amount_nanos, free_nanos - amount_nanos, version, price), account, hold, claim=claim)


def extend(operation: Extend, context: RuleContext) -> Effect[Extended]:
    account, hold = context.account, context.hold
    if hold is None or hold.state != "held":
        raise _resolved()
    hold = _at_checkpoint(hold, operation.delivered, context)
    affordable_nanos = hold.amount_nanos + context.room.of_free(account.free_nanos)
    more_nanos = max(0, operation.total_nanos - hold.amount_nanos)
    extended = operation.total_nanos <= affordable_nanos
    if extended and more_nanos:
        account = replace(account, held_nanos=account.held_nanos + more_nanos)
        hold = replace(hold, amount_nanos=operation.total_nanos)
    spendable_nanos = max(hold.amount_nanos, account.spendable_nanos)
    balance_nanos = context.room.of_balance(spendable_nanos)
    is_affordable = operation.total_nanos <= spendable_nanos
    reached = context.room.limit_reached(operation.total_nanos, context.now_us) if is_affordable else None
    answer = Extended(extended, operation.total_nanos, hold.amount_nanos, affordable_nanos, balance_nanos, reached)
    return Effect(answer, account, hold)


def checkpoint(operation: Checkpoint, context: RuleContext) -> Effect[None]:
    hold = context.hold
    if hold is None or hold.state != "held":
        return Effect(None)
    return Effect(None, hold=_at_checkpoint(hold, operation.delivered, context))


def settle(operation: Settle, context: RuleContext) -> Effect[Settled]:
    account, hold = context.account, context.hold
    if hold is None or hold.state == "void":
        raise UnmatchedSettlement
    if hold.state == "settled":
        return Effect(Settled(hold.charged_nanos, hold.loss_nanos))
    cost_nanos = _price_of(hold, context).cost_nanos(operation.usage)
    if cost_nanos < hold.booked_nanos:
        # Swept at a checkpoint beyond this usage: the checkpoint was delivered, so its charge stands.
        hold = replace(
            hold,
            state="settled",
            end=operation.end,
            loss_bound_nanos=0,
            resolved_at_us=context.now_us,
            routes_version=operation.routes_version,
        )
        return Effect(Settled(hold.charged_nanos, hold.loss_nanos), hold=hold)
    # A swept hold has released its credit: only what is free now can be charged.
    kind: Kind = "charge" if hold.state == "held" else "late_charge"
    released_nanos = hold.amount_nanos if hold.state == "held" else 0
    # A hold that was granted is charged in full, even if a limit was lowered since.
    free_nanos = context.room.of_free(account.free_nanos)
    charge_nanos = min(cost_nanos - hold.charged_nanos, released_nanos + free_nanos)
    usage = operation.usage
    entry = booking(kind, hold, usage, cost_nanos, charge_nanos, operation.basis, operation.end, context)
    if entry.loss_nanos and charge_nanos < released_nanos + account.free_nanos:
        entry = replace(entry, reason=BEYOND_SPEND_LIMIT)
    hold = replace(
        hold,
        state="settled",
        **named(usage),
        basis=operation.basis,
        charged_nanos=hold.charged_nanos + charge_nanos,
        loss_nanos=cost_nanos - hold.charged_nanos - charge_nanos,
        loss_bound_nanos=0,
        end=operation.end,
        counted_hour_us=entry.hour_us if hold.counted_hour_us is None else hold.counted_hour_us,
        resolved_at_us=context.now_us,
        routes_version=operation.routes_version,
        # What was swept with a charge counts as a request whose model is unknown.
        model_calls=operation.model_calls if entry.requests else None,
        first_token_ms=operation.first_token_ms,
        duration_ms=operation.duration_ms,
    )
    account = _after(account, released_nanos, charge_nanos)
    return Effect(Settled(hold.charged_nanos, hold.loss_nanos), account, hold, entry)


def void(operation: Void, context: RuleContext) -> Effect[None]:
    account, hold = context.account, context.hold
    if hold is None:
        # A tombstone, so that a later Reserve is refused.
        hold = Hold(
            request_id=operation.request_id,
            account_id=operation.account_id,
            key_id=operation.key_id,
            class_id=operation.class_id,
            state="void",
            end=operation.end,
            resolved_at_us=context.now_us,
        )
        return Effect(None, hold=hold)
    if hold.state not in ("held", "swept") or hold.booked_nanos:
        return Effect(None)
    if hold.state == "held" and operation.due.prompt_tokens:
        settlement = Settle(operation.request_id, operation.account_id, operation.due, "counted", operation.end)
        effect = settle(settlement, context)
        return Effect(None, effect.account, effect.hold, effect.entry)
    released_nanos = hold.amount_nanos if hold.state == "held" else 0
    loss_nanos = _price_of(hold, context).cost_nanos(operation.lost)
    entry = None
    if loss_nanos:
        entry = booking("loss", hold, operation.lost, loss_nanos, 0, "journal", operation.end, context)
        entry = replace(entry, hour_us=0, requests=0, reason=NOT_CONFIRMED)
    hold = replace(
        _with_usage(hold, operation.lost, None),
        state="void",
        loss_nanos=loss_nanos,
        loss_bound_nanos=0,
        end=operation.end,
        resolved_at_us=context.now_us,
        duration_ms=operation.duration_ms,
    )
    return Effect(None, _after(account, released_nanos, 0), hold, entry)


def sweep(operation: Sweep, context: RuleContext) -> Effect[Swept]:
    account, hold = context.account, context.hold
    if hold is None or hold.state != "held" or hold.deadline_at_us is None or hold.deadline_at_us >= context.now_us:
        return Effect(Swept(False))
    cost_nanos = _price_of(hold, context).cost_nanos(hold.usage)
    charge_nanos = min(cost_nanos, hold.amount_nanos)
    end: End = "crashed"
    entry = None
    if cost_nanos:
        entry = booking("charge", hold, hold.usage, cost_nanos, charge_nanos, "checkpoint", end, context)
    account = _after(account, hold.amount_nanos, charge_nanos)
    hold = replace(
        hold,
        state="swept",
        charged_nanos=charge_nanos,
        loss_nanos=cost_nanos - charge_nanos,
        loss_bound_nanos=hold.amount_nanos - charge_nanos,
        end=end,
        counted_hour_us=None if entry is None else entry.hour_us,
        resolved_at_us=context.now_us,
    )
    return Effect(Swept(True, charge_nanos, hold.loss_bound_nanos), account, hold, entry)


def _refuse_repeat(asked: IdempotencyClaim, found: Claim | None, claimant: Hold | None, now_us: int) -> None:
    """Raises if an Idempotency-Key is in use; `claimant` is its owner's hold.

    A key belongs to the request that reserved credit under it. Only a request that was voided, with nothing delivered,
    frees it before it expires: one that was swept may still be charged."""
    if found is None or found.claimed_at_us < now_us - CLAIM_LIFE_US:
        return
    if claimant is not None and claimant.state == "void":
        return
    if found.body_digest != asked.body_digest:
        raise LegatoError(Reason.IDEMPOTENCY_KEY_REUSED, Sentence("idempotency_key_reused"), param="Idempotency-Key")
    raise LegatoError(
        Reason.REQUEST_REPEATED,
        Sentence("request_repeated", request_id=found.request_id),
        original_request_id=found.request_id,
    )


def _wanted_nanos(operation: Reserve, price: Price, free_nanos: int) -> int:
    want_nanos = price.cost_nanos(Usage(operation.prompt_tokens, 0, max(1, operation.output_tokens)))
    whole_nanos = price.cost_nanos(Usage(operation.prompt_tokens, 0, operation.whole_output_tokens))
    return max(want_nanos, whole_nanos) if free_nanos >= WHOLE_ANSWERS_FREE * whole_nanos else want_nanos


def _price_of(hold: Hold, context: RuleContext) -> Price:
    return context.prices.pinned(hold.price_version, hold.class_id)


def _at_checkpoint(hold: Hold, delivered: Usage, context: RuleContext) -> Hold:
    """Updates the checkpoint if the usage is higher: a late report must not undo a newer one."""
    price = _price_of(hold, context)
    if price.cost_nanos(delivered) <= price.cost_nanos(hold.usage):
        return hold
    return _with_usage(hold, delivered, "checkpoint")


def _with_usage(hold: Hold, usage: Usage, basis: Basis | None) -> Hold:
    return replace(hold, **named(usage), basis=basis)


def _after(account: AccountBalance, released_nanos: int, charge_nanos: int) -> AccountBalance:
    return replace(
        account,
        balance_nanos=account.balance_nanos - charge_nanos,
        held_nanos=account.held_nanos - released_nanos,
    )


def _resolved() -> LegatoError:
    return LegatoError(Reason.REQUEST_RESOLVED, Sentence("request_resolved"))


def _too_little_credit(account: AccountBalance, least_nanos: int) -> LegatoError:
    if account.spendable_nanos < least_nanos:
        sentence = Sentence("credit_too_small")
        if account.owed_nanos:
            sentence = Sentence("credit_too_small_owed", owed=format_usd(account.owed_nanos))
        return LegatoError(Reason.CREDITS_EXHAUSTED, sentence)
    return credits_held()


def _too_many_at_once(concurrent_requests: int) -> LegatoError:
    sentence = Sentence("concurrent_requests", most=concurrent_requests)
    return LegatoError(Reason.TOO_MANY_AT_ONCE, sentence, retry_after_s=1)
