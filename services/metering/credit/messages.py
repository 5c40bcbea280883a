"""Converts and validates operations between the .proto's messages and the domain."""

from typing import Final, get_args

from msgspec.structs import asdict, replace

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.type.v1 import chat_api_pb2, model_call_pb2, usage_pb2
from services.chassis.access_tokens import current_access
from services.chassis.money import LARGEST_BOOKING_NANOS
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.sentence import Sentence
from services.chassis.sentence_messages import to_sentence_message
from services.metering.credit.model_calls import ModelCall, encode_calls
from services.metering.credit.prices import Price, Prices
from services.metering.credit.records import (
    COMMAND_LINE,
    LONGEST_MS,
    AccountBalance,
    Adjust,
    Api,
    Basis,
    ChangedBy,
    Checkpoint,
    End,
    Extend,
    Extended,
    Grant,
    Hold,
    IdempotencyClaim,
    Reserve,
    Reserved,
    Settle,
    Settled,
    Void,
)
from services.metering.messages import ID, LARGEST_TOKENS, check_ids, check_tokens, checked_id, checked_limit, invalid
from services.rules.model_classes import CLASSES
from services.rules.usage import Usage, counts_of, named, with_bounded_parts

LONGEST_ROUTES_VERSION: Final = 64
# Of a provider or a model.
LONGEST_NAME: Final = 200
UNKNOWN_KEY: Final = "unknown"


def current_user() -> ChangedBy:
    """Returns who made the current call."""
    access = current_access.get()
    return COMMAND_LINE if access is None else ChangedBy(access.user_id, access.session_id)


# The size of HMAC-SHA256.
DIGEST_BYTES: Final = 32
# Edges send a thousand at a time.
MOST_DELIVERIES: Final = 10_000
LONGEST_REASON: Final = 200

# By the numbers of enumerations. A checkpoint is no basis of a settlement.
BASES: Final[dict[int, Basis]] = {pb.Basis.Value(f"BASIS_{word.upper()}"): word for word in get_args(Basis)[:3]}
ENDS: Final[dict[int, End]] = {pb.End.Value(f"END_{word.upper()}"): word for word in get_args(End)}
APIS: Final[dict[int, Api]] = {chat_api_pb2.ChatApi.Value(f"CHAT_API_{word.upper()}"): word for word in get_args(Api)}


def to_reserve(request: pb.ReserveRequest, concurrent_requests: int | None) -> Reserve:
    """Reads a Reserve; `concurrent_requests` is the limit of a key without its own."""
    operation = Reserve(
        request_id=request.request_id,
        account_id=request.account_id,
        key_id=request.key_id,
        class_id=request.class_id,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        claim=_claim(request.claim) if request.HasField("claim") else None,
        concurrent_requests=checked_limit(request.concurrent_requests, "concurrent_requests")
        if request.HasField("concurrent_requests")
        else concurrent_requests,
        whole_output_tokens=request.whole_output_tokens,
        api=APIS.get(request.api),
    )
    account_id, key_id, class_id = operation.account_id, operation.key_id, operation.class_id
    check_ids(operation.request_id, account_id=account_id, key_id=key_id, class_id=class_id)
    check_tokens(operation.prompt_tokens, operation.output_tokens, operation.whole_output_tokens)
    return operation


def from_reserved(answer: Reserved) -> pb.ReserveResponse:
    price = from_price(answer.price_version, answer.price)
    return pb.ReserveResponse(held_nanos=answer.held_nanos, price=price, free_nanos=answer.free_nanos)


def from_price(version: int, price: Price) -> pb.Price:
    return pb.Price(version=version, **asdict(price))


def to_extend(request: pb.ExtendRequest) -> Extend:
    if request.total_nanos < 0:
        raise invalid(Sentence("amount_negative"), "total_nanos")
    request_id, account_id = request.request_id, request.account_id
    check_ids(request_id, account_id=account_id)
    return Extend(request_id, account_id, request.total_nanos, _usage(request.delivered))


def from_extended(answer: Extended) -> pb.ExtendResponse:
    response = pb.ExtendResponse(
        extended=answer.extended,
        total_nanos=answer.total_nanos,
        held_nanos=answer.held_nanos,
        affordable_nanos=answer.affordable_nanos,
        balance_nanos=answer.balance_nanos,
    )
    if answer.spend_limit is not None:
        response.spend_limit.message = str(answer.spend_limit.sentence)
        response.spend_limit.sentence.CopyFrom(to_sentence_message(answer.spend_limit.sentence))
        if answer.spend_limit.retry_after_s is not None:
            response.spend_limit.retry_after.FromMicroseconds(round(answer.spend_limit.retry_after_s * 1e6))
    return response


def to_checkpoints(request: pb.CheckpointRequest) -> list[Checkpoint]:
    if len(request.deliveries) > MOST_DELIVERIES:
        raise invalid(Sentence("deliveries_most", most=MOST_DELIVERIES), "deliveries")
    checkpoints = []
    for delivery in request.deliveries:
        request_id, account_id = delivery.request_id, delivery.account_id
        check_ids(request_id, account_id=account_id)
        checkpoints.append(Checkpoint(request_id, account_id, _usage(delivery.delivered)))
    return checkpoints


def to_settle(request: pb.SettleRequest) -> Settle:
    basis = BASES.get(request.basis)
    if basis is None:
        raise invalid(Sentence("settlement_basis_missing"), "basis")
    request_id, account_id = request.request_id, request.account_id
    check_ids(request_id, account_id=account_id)
    # Cut instead of refused: a refused settlement would be retried forever.
    routes_version = request.routes_version[:LONGEST_ROUTES_VERSION] or None
    calls = encode_calls(map(_to_call, request.calls)) if request.calls else None
    settle = Settle(
        request_id,
        account_id,
        _usage(request.usage),
        basis,
        _end(request.end),
        routes_version,
        calls,
        first_token_ms=_bounded(request.first_token_ms, LONGEST_MS) if request.HasField("first_token_ms") else None,
        duration_ms=_bounded(request.duration_ms, LONGEST_MS) if request.HasField("duration_ms") else None,
    )
    if request.class_id not in CLASSES:
        return settle
    return replace(settle, class_id=request.class_id, key_id=request.key_id if ID.fullmatch(request.key_id) else "")


def from_unmatched(settle: Settle, prices: Prices, now_us: int) -> pb.UnmatchedSettlement:
    """Describes a settlement without a hold, with what it costs at the present price."""
    price = prices.of_version(prices.version_at(now_us), settle.class_id) if settle.class_id else None
    usage = settle.usage
    return pb.UnmatchedSettlement(
        request_id=settle.request_id,
        account_id=settle.account_id,
        key_id=settle.key_id,
        class_id=settle.class_id,
        usage=usage_pb2.Usage(**named(usage)),
        cost_nanos=0 if price is None else price.cost_nanos(usage),
    )


def to_missing_hold(settle: Settle) -> Reserve:
    """Returns what holds the credit of a settlement without a hold. The key of a request that an earlier edge served is
    not known."""
    usage, key_id = settle.usage, settle.key_id or UNKNOWN_KEY
    tokens = usage.prompt_tokens, usage.completion_tokens
    return Reserve(settle.request_id, settle.account_id, key_id, settle.class_id, *tokens)


def _to_call(given: model_call_pb2.ModelCall) -> ModelCall:
    """Counts that are too large are cut, too."""
    usage = Usage(*with_bounded_parts([min(max(count, 0), LARGEST_TOKENS) for count in counts_of(given.usage)]))
    return ModelCall(
        provider=given.provider[:LONGEST_NAME],
        model_name=given.model_name[:LONGEST_NAME],
        usage=usage,
        cost_nanos=_bounded(given.cost_nanos, LARGEST_BOOKING_NANOS) if given.HasField("cost_nanos") else None,
    )


def _bounded(count: int, most: int) -> int:
    return min(max(count, 0), most)


def from_settled(answer: Settled) -> pb.SettleResponse:
    return pb.SettleResponse(charged_nanos=answer.charged_nanos, loss_nanos=answer.loss_nanos)


def to_void(request: pb.VoidRequest, *, charges_prompt: bool = False) -> Void:
    request_id, account_id = request.request_id, request.account_id
    check_ids(request_id, account_id=account_id)
    due_tokens = request.accepted_prompt_tokens if charges_prompt else 0
    check_tokens(due_tokens, 0)
    return Void(
        request_id=request_id,
        account_id=account_id,
        end=_end(request.end),
        # Optional: the tombstone of an unknown request works without them.
        key_id=checked_id(request.key_id, "key_id") if request.key_id else "",
        class_id=checked_id(request.class_id, "class_id") if request.class_id else "",
        lost=_usage(request.lost),
        due=Usage(prompt_tokens=due_tokens),
        duration_ms=_bounded(request.duration_ms, LONGEST_MS) if request.HasField("duration_ms") else None,
    )


def to_grant(request: pb.GrantCreditsRequest) -> Grant:
    if not 0 < request.amount_nanos <= LARGEST_BOOKING_NANOS:
        raise invalid(Sentence("grant_amount"), "amount_nanos")
    return Grant(
        operation_id=checked_id(request.operation_id, "operation_id"),
        account_id=checked_id(request.account_id, "account_id"),
        amount_nanos=request.amount_nanos,
        is_by_command_line=current_user() == COMMAND_LINE,
    )


def to_adjust(request: pb.AdjustCreditsRequest) -> Adjust:
    if not 0 < abs(request.amount_nanos) <= LARGEST_BOOKING_NANOS:
        raise invalid(Sentence("adjustment_amount"), "amount_nanos")
    reason = request.reason.strip()
    if not 1 <= len(reason) <= LONGEST_REASON or not reason.isprintable():
        raise invalid(Sentence("adjustment_reason", most=LONGEST_REASON), "reason")
    return Adjust(
        operation_id=checked_id(request.operation_id, "operation_id"),
        account_id=checked_id(request.account_id, "account_id"),
        amount_nanos=request.amount_nanos,
        reason=reason,
        is_by_command_line=current_user() == COMMAND_LINE,
    )


def from_account(account: AccountBalance) -> pb.Balance:
    return to_message(pb.Balance, account)


def _claim(given: pb.IdempotencyClaim) -> IdempotencyClaim:
    if len(given.key_digest) != DIGEST_BYTES or len(given.body_digest) != DIGEST_BYTES:
        raise invalid(Sentence("claim_digests", size_bytes=DIGEST_BYTES), "claim")
    return IdempotencyClaim(given.key_digest, given.body_digest)


def _usage(given: usage_pb2.Usage) -> Usage:
    counts = counts_of(given)
    check_tokens(*counts)
    # Clamped to the whole, whatever a provider says. A refused settlement would be retried forever.
    return Usage(*with_bounded_parts(counts))


def _end(given: "pb.End.ValueType") -> End:
    end = ENDS.get(given)
    if end is None:
        raise invalid(Sentence("end_missing"), "end")
    return end


def from_hold(hold: Hold) -> pb.GetRequestResponse:
    return to_message(pb.GetRequestResponse, hold, **reported_fields(hold))


def reported_fields(hold: Hold) -> dict[str, object]:
    """Returns the fields of messages about a request that are not those of its hold."""
    fields: dict[str, object] = {"end_time": to_timestamp(hold.resolved_at_us)}
    if hold.state == "held":
        return fields | {"state": pb.REQUEST_STATE_RUNNING, "held_nanos": hold.amount_nanos, "basis": None}
    return fields | {"held_nanos": 0}
