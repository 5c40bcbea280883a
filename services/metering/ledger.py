"""The rules of credit: given an account, a hold and an operation, what is answered and what is written.

Pure: no clock, no database, no order of calls that would break it. Any operation may come twice, late, out of order or
contradict an earlier one, and has a definite answer. A refusal is raised, and changes nothing.
"""

from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple

from msgspec.structs import replace

from services.chassis.errors import LegatoError, Reason
from services.metering.claims import refuse_repeat
from services.metering.operations import (
    Adjust,
    AnswerT,
    Checkpoint,
    Checkpointed,
    Extend,
    Extended,
    Grant,
    Operation,
    Reserve,
    Reserved,
    Settle,
    Settled,
    Sweep,
    Swept,
    Void,
    Voided,
)
from services.metering.prices import Price, Prices
from services.metering.records import HOUR_US, Account, Basis, Claim, End, Entry, Hold, Kind, Usage

# Far beyond any account, and far within the database's integers.
LARGEST_BALANCE_NANOS: Final = 10**18

# Why something was lost: neither the hold nor free credit covered it; or nobody knows whether it was delivered.
BEYOND_CREDIT: Final = "beyond_credit"
NOT_CONFIRMED: Final = "not_confirmed"


class Scene(NamedTuple):
    """What an operation finds."""

    account: Account
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


class Effect(NamedTuple, Generic[AnswerT]):
    """None: as it was."""

    answer: AnswerT
    account: Account | None = None
    hold: Hold | None = None
    entry: Entry | None = None
    claim: Claim | None = None


class UnmatchedSettlement(LegatoError):
    """A settlement for which there is no hold, or whose hold was given back: tokens were served that nobody reserved.
    Whoever sent it must keep its record and somebody must look, so this is no ordinary refusal."""

    def __init__(self) -> None:
        super().__init__(Reason.INTERNAL, "This request cannot be settled: its credit is not held.")


def apply(operation: Operation[AnswerT], scene: Scene) -> Effect[AnswerT]:
    if scene.hold is not None and scene.hold.account_id != operation.account_id:
        raise LegatoError(Reason.REQUEST_INVALID, "The request belongs to another account.", param="account_id")
    return _RULES[type(operation)](operation, scene)


def _reserve(operation: Reserve, scene: Scene) -> Effect[Reserved]:
    account, hold = scene.account, scene.hold
    if hold is not None:
        if hold.state != "held":
            raise _resolved()
        answer = Reserved(hold.amount_nanos, account.free_nanos, hold.price_version, _price_of(hold, scene))
        return Effect(answer)
    claim = None
    if operation.claim is not None:
        # Before the credit is looked at: the first of two may hold all of it.
        refuse_repeat(operation.claim, scene.claim, scene.claimant, scene.now_us)
        digests = operation.claim.key_digest, operation.claim.body_digest
        claim = Claim(operation.account_id, *digests, operation.request_id, scene.now_us)
    version = scene.prices.current_version
    price = scene.prices.current(operation.class_id)
    least_nanos = price.cost_nanos(Usage(operation.prompt_tokens, 0, 1))
    want_nanos = price.cost_nanos(Usage(operation.prompt_tokens, 0, max(1, operation.output_tokens)))
    if account.free_nanos < least_nanos:
        raise _too_little_credit(account, least_nanos)
    amount_nanos = min(want_nanos, account.free_nanos)
    account = replace(account, held_nanos=account.held_nanos + amount_nanos)
    hold = Hold(
        request_id=operation.request_id,
        account_id=operation.account_id,
        key_id=operation.key_id,
        class_id=operation.class_id,
        state="held",
        amount_nanos=amount_nanos,
        price_version=version,
        deadline_at_us=scene.now_us + scene.life_us,
        reserved_at_us=scene.now_us,
    )
    return Effect(Reserved(amount_nanos, account.free_nanos, version, price), account, hold, claim=claim)


def _extend(operation: Extend, scene: Scene) -> Effect[Extended]:
    account, hold = scene.account, scene.hold
    if hold is None or hold.state != "held":
        raise _resolved()
    hold = _at_checkpoint(hold, operation.delivered, scene)
    affordable_nanos = hold.amount_nanos + account.free_nanos
    more_nanos = max(0, operation.total_nanos - hold.amount_nanos)
    extended = operation.total_nanos <= affordable_nanos
    if extended and more_nanos:
        account = replace(account, held_nanos=account.held_nanos + more_nanos)
        hold = replace(hold, amount_nanos=operation.total_nanos)
    answer = Extended(extended, operation.total_nanos, hold.amount_nanos, affordable_nanos)
    return Effect(answer, account, hold)


def _checkpoint(operation: Checkpoint, scene: Scene) -> Effect[Checkpointed]:
    hold = scene.hold
    if hold is None or hold.state != "held":
        return Effect(Checkpointed())
    return Effect(Checkpointed(), hold=_at_checkpoint(hold, operation.delivered, scene))


def _settle(operation: Settle, scene: Scene) -> Effect[Settled]:
    account, hold = scene.account, scene.hold
    if hold is None or hold.state == "void":
        raise UnmatchedSettlement
    if hold.state == "settled":
        return Effect(Settled(hold.charged_nanos, hold.loss_nanos))
    cost_nanos = _price_of(hold, scene).cost_nanos(operation.usage)
    if cost_nanos < hold.booked_nanos:
        # Swept at a checkpoint that says more than this: the checkpoint was delivered, so it stands.
        hold = replace(hold, state="settled", end=operation.end, loss_bound_nanos=0, resolved_at_us=scene.now_us)
        return Effect(Settled(hold.charged_nanos, hold.loss_nanos), hold=hold)
    # A swept hold has given its credit back: what is free now is all that can be charged.
    kind: Kind = "charge" if hold.state == "held" else "late_charge"
    released_nanos = hold.amount_nanos if hold.state == "held" else 0
    charge_nanos = min(cost_nanos - hold.charged_nanos, released_nanos + account.free_nanos)
    entry = _booking(kind, hold, operation.usage, cost_nanos, charge_nanos, scene)
    entry = replace(entry, basis=operation.basis, end=operation.end)
    hold = replace(
        _with_usage(hold, operation.usage, operation.basis),
        state="settled",
        charged_nanos=hold.charged_nanos + charge_nanos,
        loss_nanos=cost_nanos - hold.charged_nanos - charge_nanos,
        loss_bound_nanos=0,
        end=operation.end,
        counted_hour_us=entry.hour_us,
        resolved_at_us=scene.now_us,
    )
    account = _after(account, released_nanos, charge_nanos)
    return Effect(Settled(hold.charged_nanos, hold.loss_nanos), account, hold, entry)


def _void(operation: Void, scene: Scene) -> Effect[Voided]:
    account, hold = scene.account, scene.hold
    if hold is None:
        # A mark, so that a Reserve that comes later finds it.
        hold = Hold(
            request_id=operation.request_id,
            account_id=operation.account_id,
            key_id=operation.key_id,
            class_id=operation.class_id,
            state="void",
            end=operation.end,
            resolved_at_us=scene.now_us,
        )
        return Effect(Voided(), hold=hold)
    if hold.state not in ("held", "swept") or hold.booked_nanos:
        return Effect(Voided())
    released_nanos = hold.amount_nanos if hold.state == "held" else 0
    loss_nanos = _price_of(hold, scene).cost_nanos(operation.lost)
    entry = None
    if loss_nanos:
        entry = _booking("loss", hold, operation.lost, loss_nanos, 0, scene)
        entry = replace(entry, basis="journal", end=operation.end, hour_us=0, requests=0, reason=NOT_CONFIRMED)
    hold = replace(
        _with_usage(hold, operation.lost, None),
        state="void",
        loss_nanos=loss_nanos,
        loss_bound_nanos=0,
        end=operation.end,
        resolved_at_us=scene.now_us,
    )
    return Effect(Voided(), _after(account, released_nanos, 0), hold, entry)


def _sweep(operation: Sweep, scene: Scene) -> Effect[Swept]:
    account, hold = scene.account, scene.hold
    if hold is None or hold.state != "held" or hold.deadline_at_us is None or hold.deadline_at_us >= scene.now_us:
        return Effect(Swept(False))
    cost_nanos = _price_of(hold, scene).cost_nanos(hold.usage)
    charge_nanos = min(cost_nanos, hold.amount_nanos)
    end: End = "crashed"
    entry = None
    if cost_nanos:
        entry = _booking("charge", hold, hold.usage, cost_nanos, charge_nanos, scene)
        entry = replace(entry, basis="checkpoint", end=end)
    account = _after(account, hold.amount_nanos, charge_nanos)
    hold = replace(
        hold,
        state="swept",
        charged_nanos=charge_nanos,
        loss_nanos=cost_nanos - charge_nanos,
        loss_bound_nanos=hold.amount_nanos - charge_nanos,
        end=end,
        counted_hour_us=None if entry is None else entry.hour_us,
        resolved_at_us=scene.now_us,
    )
    return Effect(Swept(True, charge_nanos, hold.loss_bound_nanos), account, hold, entry)


def _grant(operation: Grant, scene: Scene) -> Effect[Account]:
    return _credit("grant", operation, None, scene)


def _adjust(operation: Adjust, scene: Scene) -> Effect[Account]:
    return _credit("adjustment", operation, operation.reason, scene)


def _credit(kind: Kind, operation: Grant | Adjust, reason: str | None, scene: Scene) -> Effect[Account]:
    account, booked, amount_nanos = scene.account, scene.booked, operation.amount_nanos
    if booked is not None:
        if (booked.account_id, booked.customer_nanos) != (operation.account_id, amount_nanos):
            raise LegatoError(Reason.REQUEST_INVALID, f"This id was used for another {kind}.")
        return Effect(account)
    if account.free_nanos + amount_nanos < 0:
        message = "The account has less than that: its balance, without what is held, may not fall below zero."
        raise LegatoError(Reason.REQUEST_INVALID, message, param="amount_nanos")
    if account.balance_nanos + amount_nanos > LARGEST_BALANCE_NANOS:
        raise LegatoError(Reason.REQUEST_INVALID, "No account may have that much.", param="amount_nanos")
    account = replace(account, balance_nanos=account.balance_nanos + amount_nanos)
    entry = Entry(
        kind=kind,
        request_id=operation.request_id,
        account_id=operation.account_id,
        customer_nanos=amount_nanos,
        external_nanos=-amount_nanos,
        recorded_at_us=scene.now_us,
        reason=reason,
    )
    return Effect(account, account, None, entry)


def _booking(kind: Kind, hold: Hold, usage: Usage, cost_nanos: int, charge_nanos: int, scene: Scene) -> Entry:
    """What a charge adds to whatever the request was charged before."""
    counted = hold.usage if hold.counted_hour_us is not None else Usage()
    hour_us = hold.counted_hour_us
    loss_nanos = cost_nanos - hold.booked_nanos - charge_nanos
    return Entry(
        kind=kind,
        request_id=hold.request_id,
        account_id=hold.account_id,
        customer_nanos=-charge_nanos,
        revenue_nanos=cost_nanos - hold.booked_nanos,
        loss_nanos=-loss_nanos,
        recorded_at_us=scene.now_us,
        key_id=hold.key_id,
        class_id=hold.class_id,
        price_version=hold.price_version,
        hour_us=scene.now_us - scene.now_us % HOUR_US if hour_us is None else hour_us,
        requests=1 if hour_us is None else 0,
        prompt_tokens=usage.prompt_tokens - counted.prompt_tokens,
        cached_tokens=usage.cached_tokens - counted.cached_tokens,
        completion_tokens=usage.completion_tokens - counted.completion_tokens,
        reason=BEYOND_CREDIT if loss_nanos else None,
    )


def _price_of(hold: Hold, scene: Scene) -> Price:
    return scene.prices.pinned(hold.price_version, hold.class_id)


def _at_checkpoint(hold: Hold, delivered: Usage, scene: Scene) -> Hold:
    """Checkpoints only grow: one that comes late must not undo a newer one."""
    price = _price_of(hold, scene)
    if price.cost_nanos(delivered) <= price.cost_nanos(hold.usage):
        return hold
    return _with_usage(hold, delivered, "checkpoint")


def _with_usage(hold: Hold, usage: Usage, basis: Basis | None) -> Hold:
    return replace(
        hold,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        completion_tokens=usage.completion_tokens,
        basis=basis,
    )


def _after(account: Account, released_nanos: int, charge_nanos: int) -> Account:
    return replace(
        account,
        balance_nanos=account.balance_nanos - charge_nanos,
        held_nanos=account.held_nanos - released_nanos,
    )


def _resolved() -> LegatoError:
    return LegatoError(Reason.REQUEST_RESOLVED, "This request is over, or was never reserved.")


def _too_little_credit(account: Account, least_nanos: int) -> LegatoError:
    if account.balance_nanos < least_nanos:
        return LegatoError(Reason.CREDITS_EXHAUSTED, "The account's credit does not cover this request.")
    message = "The account's credit is held by its own running requests. Please retry when one has ended."
    return LegatoError(Reason.CREDITS_HELD, message, retry_after_s=1)


_RULES: Final[dict[type[Any], Callable[[Any, Scene], Effect[Any]]]] = {
    Reserve: _reserve,
    Extend: _extend,
    Checkpoint: _checkpoint,
    Settle: _settle,
    Void: _void,
    Sweep: _sweep,
    Grant: _grant,
    Adjust: _adjust,
}
