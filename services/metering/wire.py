"""Between the .proto's messages and the domain: whatever comes in is checked here, once."""

import re
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from protos.metering.v1 import metering_pb2 as pb
from protos.type.v1 import usage_pb2
from services.chassis.errors import LegatoError, Reason
from services.metering.limits import LARGEST_RATE, Allowance
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
from services.metering.records import HOUR_US, Account, Basis, End, Usage
from services.metering.usage import DAY_US, UsageQuery, UsageRow

LARGEST_TOKENS: Final = 10**9
# Of HMAC-SHA256.
DIGEST_BYTES: Final = 32
# What one edge can have under way is far less.
MOST_DELIVERIES: Final = 10_000
# A million dollars at once.
LARGEST_AMOUNT_NANOS: Final = 10**15
LONGEST_REASON: Final = 200

_REQUEST_ID: Final = re.compile(r"[0-9a-f]{32}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_BASES: Final[dict[int, Basis]] = {
    pb.BASIS_PROVIDER: "provider",
    pb.BASIS_COUNTED: "counted",
    pb.BASIS_JOURNAL: "journal",
}
_ENDS: Final[dict[int, End]] = {
    pb.END_COMPLETE: "complete",
    pb.END_CLIENT_GONE: "client_gone",
    pb.END_UPSTREAM_CUT: "upstream_cut",
    pb.END_CREDIT_SPENT: "credit_spent",
    pb.END_REFUSED: "refused",
    pb.END_CRASHED: "crashed",
}
_BUCKETS: Final[dict[int, int]] = {pb.USAGE_BUCKET_HOUR: HOUR_US, pb.USAGE_BUCKET_DAY: DAY_US}


def to_reserve(request: pb.ReserveRequest) -> Reserve:
    return Reserve(
        request_id=_request_id(request.request_id),
        account_id=checked_id(request.account_id, "account_id"),
        key_id=checked_id(request.key_id, "key_id"),
        class_id=checked_id(request.class_id, "class_id"),
        prompt_tokens=_tokens(request.prompt_tokens),
        output_tokens=_tokens(request.output_tokens),
        claim=_claim(request.claim) if request.HasField("claim") else None,
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
        raise _invalid("An amount must not be negative.", "total_nanos")
    return Extend(
        request_id=_request_id(request.request_id),
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
    )


def to_checkpoints(request: pb.CheckpointRequest) -> list[Checkpoint]:
    if len(request.deliveries) > MOST_DELIVERIES:
        raise _invalid(f"At most {MOST_DELIVERIES} deliveries can be told at once.", "deliveries")
    return [
        Checkpoint(
            request_id=_request_id(delivery.request_id),
            account_id=checked_id(delivery.account_id, "account_id"),
            delivered=_usage(delivery.delivered),
        )
        for delivery in request.deliveries
    ]


def to_settle(request: pb.SettleRequest) -> Settle:
    basis = _BASES.get(request.basis)
    if basis is None:
        raise _invalid("A settlement must say where its counts come from.", "basis")
    return Settle(
        request_id=_request_id(request.request_id),
        account_id=checked_id(request.account_id, "account_id"),
        usage=_usage(request.usage),
        basis=basis,
        end=_end(request.end),
    )


def from_settled(answer: Settled) -> pb.SettleResponse:
    return pb.SettleResponse(charged_nanos=answer.charged_nanos, loss_nanos=answer.loss_nanos)


def to_void(request: pb.VoidRequest) -> Void:
    return Void(
        request_id=_request_id(request.request_id),
        account_id=checked_id(request.account_id, "account_id"),
        end=_end(request.end),
        # A mark for an unknown request may do without them.
        key_id=checked_id(request.key_id, "key_id") if request.key_id else "",
        class_id=checked_id(request.class_id, "class_id") if request.class_id else "",
        lost=_usage(request.lost),
    )


def from_voided(answer: Voided) -> pb.VoidResponse:
    return pb.VoidResponse()


def to_rate(request: pb.AdmitRequest) -> int | None:
    """Requests a minute, where the account has a limit of its own."""
    if not request.HasField("requests_per_minute"):
        return None
    if not 1 <= request.requests_per_minute <= LARGEST_RATE:
        raise _invalid(f"A rate must be between 1 and {LARGEST_RATE} requests a minute.", "requests_per_minute")
    return request.requests_per_minute


def from_allowance(allowance: Allowance) -> pb.AdmitResponse:
    return pb.AdmitResponse(
        limit_requests=allowance.limit_requests,
        remaining_requests=allowance.remaining_requests,
        reset_requests_ms=allowance.reset_requests_ms,
    )


def to_grant(request: pb.GrantCreditsRequest) -> Grant:
    if not 0 < request.amount_nanos <= LARGEST_AMOUNT_NANOS:
        raise _invalid("A grant must be positive, and at most a million dollars.", "amount_nanos")
    return Grant(
        request_id=checked_id(request.grant_id, "grant_id"),
        account_id=checked_id(request.account_id, "account_id"),
        amount_nanos=request.amount_nanos,
    )


def to_adjust(request: pb.AdjustCreditsRequest) -> Adjust:
    if not 0 < abs(request.amount_nanos) <= LARGEST_AMOUNT_NANOS:
        raise _invalid("An adjustment must not be zero, and at most a million dollars.", "amount_nanos")
    reason = request.reason.strip()
    if not 1 <= len(reason) <= LONGEST_REASON or not reason.isprintable():
        raise _invalid(f"An adjustment needs a reason of 1 to {LONGEST_REASON} printable characters.", "reason")
    return Adjust(
        request_id=checked_id(request.adjustment_id, "adjustment_id"),
        account_id=checked_id(request.account_id, "account_id"),
        amount_nanos=request.amount_nanos,
        reason=reason,
    )


def from_account(account: Account) -> pb.Balance:
    return pb.Balance(account_id=account.account_id, balance_nanos=account.balance_nanos, held_nanos=account.held_nanos)


def to_usage_query(request: pb.ListUsageRequest) -> UsageQuery:
    bucket_us = _BUCKETS.get(request.bucket)
    if bucket_us is None:
        raise _invalid("Usage is listed by hour or by day.", "bucket")
    if not request.HasField("start_time") or not request.HasField("end_time"):
        raise _invalid("Usage is listed from a start to an end.", "start_time")
    return UsageQuery(
        account_id=checked_id(request.account_id, "account_id"),
        start_us=_microseconds(request.start_time),
        end_us=_microseconds(request.end_time),
        bucket_us=bucket_us,
        group_by_key=request.group_by_key,
        group_by_class=request.group_by_class,
    )


def from_usage_row(row: UsageRow) -> pb.UsageRow:
    start_time = Timestamp()
    start_time.FromMicroseconds(row.start_us)
    return pb.UsageRow(
        start_time=start_time,
        key_id=row.key_id,
        class_id=row.class_id,
        requests=row.requests,
        usage=usage_pb2.Usage(
            prompt_tokens=row.usage.prompt_tokens,
            cached_tokens=row.usage.cached_tokens,
            completion_tokens=row.usage.completion_tokens,
        ),
        cost_nanos=row.cost_nanos,
    )


def checked_id(given: str, param: str) -> str:
    if not _ID.fullmatch(given):
        raise _invalid("This is not an id.", param)
    return given


def _request_id(given: str) -> str:
    if not _REQUEST_ID.fullmatch(given):
        raise _invalid("A request's id has 32 hexadecimal digits.", "request_id")
    return given


def _claim(given: pb.IdempotencyClaim) -> IdempotencyClaim:
    if len(given.key_digest) != DIGEST_BYTES or len(given.body_digest) != DIGEST_BYTES:
        raise _invalid(f"A claim is made of two digests of {DIGEST_BYTES} bytes.", "claim")
    return IdempotencyClaim(given.key_digest, given.body_digest)


def _tokens(given: int) -> int:
    if not 0 <= given <= LARGEST_TOKENS:
        raise _invalid(f"A count of tokens must be between 0 and {LARGEST_TOKENS}.", "usage")
    return given


def _usage(given: usage_pb2.Usage) -> Usage:
    prompt_tokens = _tokens(given.prompt_tokens)
    # Cached tokens are part of the prompt's, whatever a provider says. Refused, its settlement would come for ever.
    cached_tokens = min(_tokens(given.cached_tokens), prompt_tokens)
    return Usage(prompt_tokens, cached_tokens, _tokens(given.completion_tokens))


def _end(given: int) -> End:
    end = _ENDS.get(given)
    if end is None:
        raise _invalid("It must be said how the request ended.", "end")
    return end


def _microseconds(given: Timestamp) -> int:
    # Not `ToMicroseconds`: it would silently cut off what makes this no full hour.
    if given.nanos % 1000:
        raise _invalid("A time must be at a full hour.", "start_time")
    return given.seconds * 1_000_000 + given.nanos // 1000


def _invalid(message: str, param: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)
