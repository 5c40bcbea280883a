"""Converts and validates operations between the .proto's messages and the domain."""

from typing import Final

from protos.metering.v1 import metering_pb2 as pb
from protos.type.v1 import usage_pb2
from services.chassis.money import LARGEST_BOOKING_NANOS
from services.metering.limits import RateLimits
from services.metering.operations import (
    Adjust,
    Checkpoint,
    Extend,
    Extended,
    Grant,
    IdempotencyClaim,
    Reserve,
    Reserved,
    Settle,
    Settled,
    Void,
    Voided,
)
from services.metering.records import AccountBalance, Basis, End, Usage
from services.metering.wire.checked import checked_id, checked_limit, checked_request_id, checked_tokens, invalid

# The size of HMAC-SHA256.
DIGEST_BYTES: Final = 32
# Edges send a thousand at a time.
MOST_DELIVERIES: Final = 10_000
LONGEST_REASON: Final = 200

BASES: Final[dict["pb.Basis.ValueType", Basis]] = {
    pb.BASIS_PROVIDER: "provider",
    pb.BASIS_COUNTED: "counted",
    pb.BASIS_JOURNAL: "journal",
}
ENDS: Final[dict["pb.End.ValueType", End]] = {
    pb.END_COMPLETE: "complete",
    pb.END_CLIENT_GONE: "client_gone",
    pb.END_UPSTREAM_CUT: "upstream_cut",
    pb.END_CREDIT_SPENT: "credit_spent",
    pb.END_REFUSED: "refused",
    pb.END_CRASHED: "crashed",
    pb.END_KEY_REFUSED: "key_refused",
}


def to_reserve(request: pb.ReserveRequest, default_limits: RateLimits) -> Reserve:
    return Reserve(
        request_id=checked_request_id(request.request_id),
        account_id=checked_id(request.account_id, "account_id"),
        key_id=checked_id(request.key_id, "key_id"),
        class_id=checked_id(request.class_id, "class_id"),
        prompt_tokens=checked_tokens(request.prompt_tokens),
        output_tokens=checked_tokens(request.output_tokens),
        claim=_claim(request.claim) if request.HasField("claim") else None,
        concurrent_requests=_concurrency(request) or default_limits.concurrent_requests,
        whole_output_tokens=checked_tokens(request.whole_output_tokens),
    )


def from_reserved(answer: Reserved) -> pb.ReserveResponse:
    price = pb.Price(
        version=answer.price_version,
        input_nanos_per_million=answer.price.input_nanos,
        cached_input_nanos_per_million=answer.price.cached_input_nanos,
        output_nanos_per_million=answer.price.output_nanos,
    )
    return pb.ReserveResponse(held_nanos=answer.held_nanos, price=price, free_nanos=answer.free_nanos)


def to_extend(request: pb.ExtendRequest) -> Extend:
    if request.total_nanos < 0:
        raise invalid("An amount must not be negative.", "total_nanos")
    return Extend(
        request_id=checked_request_id(request.request_id),
        account_id=checked_id(request.account_id, "account_id"),
        total_nanos=request.total_nanos,
        delivered=_usage(request.delivered),
    )


def from_extended(answer: Extended) -> pb.ExtendResponse:
    return pb.ExtendResponse(
        extended=answer.extended,
        total_nanos=answer.total_nanos,
        held_nanos=answer.held_nanos,
        affordable_nanos=answer.affordable_nanos,
        balance_nanos=answer.balance_nanos,
    )


def to_checkpoints(request: pb.CheckpointRequest) -> list[Checkpoint]:
    if len(request.deliveries) > MOST_DELIVERIES:
        raise invalid(f"At most {MOST_DELIVERIES} deliveries can be reported at once.", "deliveries")
    return [
        Checkpoint(
            request_id=checked_request_id(delivery.request_id),
            account_id=checked_id(delivery.account_id, "account_id"),
            delivered=_usage(delivery.delivered),
        )
        for delivery in request.deliveries
    ]


def to_settle(request: pb.SettleRequest) -> Settle:
    basis = BASES.get(request.basis)
    if basis is None:
        raise invalid("A settlement must say where its counts come from.", "basis")
    return Settle(
        request_id=checked_request_id(request.request_id),
        account_id=checked_id(request.account_id, "account_id"),
        usage=_usage(request.usage),
        basis=basis,
        end=_end(request.end),
    )


def from_settled(answer: Settled) -> pb.SettleResponse:
    return pb.SettleResponse(charged_nanos=answer.charged_nanos, loss_nanos=answer.loss_nanos)


def to_void(request: pb.VoidRequest, *, charges_prompt: bool = False) -> Void:
    return Void(
        request_id=checked_request_id(request.request_id),
        account_id=checked_id(request.account_id, "account_id"),
        end=_end(request.end),
        # Optional: the tombstone of an unknown request works without them.
        key_id=checked_id(request.key_id, "key_id") if request.key_id else "",
        class_id=checked_id(request.class_id, "class_id") if request.class_id else "",
        lost=_usage(request.lost),
        due=Usage(prompt_tokens=checked_tokens(request.accepted_prompt_tokens)) if charges_prompt else Usage(),
    )


def from_voided(answer: Voided) -> pb.VoidResponse:
    return pb.VoidResponse()


def to_grant(request: pb.GrantCreditsRequest) -> Grant:
    if not 0 < request.amount_nanos <= LARGEST_BOOKING_NANOS:
        raise invalid("A grant must be positive, and at most a million dollars.", "amount_nanos")
    return Grant(
        operation_id=checked_id(request.operation_id, "operation_id"),
        account_id=checked_id(request.account_id, "account_id"),
        amount_nanos=request.amount_nanos,
    )


def to_adjust(request: pb.AdjustCreditsRequest) -> Adjust:
    if not 0 < abs(request.amount_nanos) <= LARGEST_BOOKING_NANOS:
        raise invalid("An adjustment must not be zero, and at most a million dollars.", "amount_nanos")
    reason = request.reason.strip()
    if not 1 <= len(reason) <= LONGEST_REASON or not reason.isprintable():
        raise invalid(f"An adjustment needs a reason of 1 to {LONGEST_REASON} printable characters.", "reason")
    return Adjust(
        operation_id=checked_id(request.operation_id, "operation_id"),
        account_id=checked_id(request.account_id, "account_id"),
        amount_nanos=request.amount_nanos,
        reason=reason,
    )


def from_account(account: AccountBalance) -> pb.Balance:
    return pb.Balance(account_id=account.account_id, balance_nanos=account.balance_nanos, held_nanos=account.held_nanos)


def _concurrency(request: pb.ReserveRequest) -> int | None:
    """Returns the key's own limit, where the request names it."""
    if not request.HasField("concurrent_requests"):
        return None
    return checked_limit(request.concurrent_requests, "concurrent_requests")


def _claim(given: pb.IdempotencyClaim) -> IdempotencyClaim:
    if len(given.key_digest) != DIGEST_BYTES or len(given.body_digest) != DIGEST_BYTES:
        raise invalid(f"A claim is made of two digests of {DIGEST_BYTES} bytes.", "claim")
    return IdempotencyClaim(given.key_digest, given.body_digest)


def _usage(given: usage_pb2.Usage) -> Usage:
    prompt_tokens = checked_tokens(given.prompt_tokens)
    # Clamped to the prompt's tokens, whatever a provider says. A refused settlement would be retried forever.
    cached_tokens = min(checked_tokens(given.cached_tokens), prompt_tokens)
    return Usage(prompt_tokens, cached_tokens, checked_tokens(given.completion_tokens))


def _end(given: "pb.End.ValueType") -> End:
    end = ENDS.get(given)
    if end is None:
        raise invalid("It must be said how the request ended.", "end")
    return end
