"""Converts rate limits and spend limits between the .proto's messages and the domain."""

from typing import Final

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1 import spend_limits_pb2
from services.chassis.money import LARGEST_BOOKING_NANOS
from services.chassis.rpc.messages import to_message, to_timestamp
from services.chassis.sentence import Sentence
from services.metering.credit.calendar import next_day_us, next_month_us
from services.metering.credit.ledger.spend import Spend, SpendLimits
from services.metering.limits.rates import (
    RateAllowance,
    RateCharge,
    RateLimits,
    admission,
    correction,
    request_rate,
    token_rate,
)
from services.metering.messages import LARGEST_TOKENS, check_tokens, checked_id, checked_limit, invalid

_SPEND_LIMITS: Final = ("day_nanos", "month_nanos", "total_nanos")


def to_admission(request: pb.AdmitRequest, defaults: RateLimits) -> RateCharge:
    key_id = checked_id(request.key_id, "key_id")
    limits = _to_limits(request, defaults)
    if request.only_looks:
        return correction(key_id, limits, 0, 0)
    tokens = request.tokens
    check_tokens(tokens, 0)
    return admission(key_id, limits, tokens)


def to_correction(request: pb.CorrectRequest, defaults: RateLimits) -> RateCharge:
    key_id = checked_id(request.key_id, "key_id")
    if abs(request.tokens) > LARGEST_TOKENS:
        raise invalid(Sentence("correction_most", most=LARGEST_TOKENS), "tokens")
    return correction(key_id, _to_limits(request, defaults), -1 if request.refused else 0, request.tokens)


def from_allowance(allowance: RateAllowance) -> pb.AdmitResponse:
    response = pb.AdmitResponse(
        limit_requests=allowance.limit_requests,
        remaining_requests=allowance.remaining_requests,
        reset_requests_ms=allowance.reset_requests_ms,
    )
    if allowance.limit_tokens:
        response.limit_tokens = allowance.limit_tokens
        response.remaining_tokens = allowance.remaining_tokens
        response.reset_tokens_ms = allowance.reset_tokens_ms
    return response


def _to_limits(request: pb.AdmitRequest | pb.CorrectRequest, defaults: RateLimits) -> RateLimits:
    """Returns the limits, the request's own before the defaults."""
    if not request.HasField("requests_per_minute") and not request.HasField("tokens_per_minute"):
        return defaults
    requests, tokens = defaults.requests, defaults.tokens
    if request.HasField("requests_per_minute"):
        requests = request_rate(checked_limit(request.requests_per_minute, "requests_per_minute"))
    if request.HasField("tokens_per_minute"):
        tokens = token_rate(checked_limit(request.tokens_per_minute, "tokens_per_minute"))
    return RateLimits(requests, tokens)


def to_spend_limits(given: spend_limits_pb2.SpendLimits) -> SpendLimits:
    return SpendLimits(*(_limit(given, name) for name in _SPEND_LIMITS))


def _limit(given: spend_limits_pb2.SpendLimits, name: str) -> int | None:
    if not given.HasField(name):  # type: ignore[arg-type]
        return None
    nanos: int = getattr(given, name)
    if not 0 <= nanos <= LARGEST_BOOKING_NANOS:
        raise invalid(Sentence("spend_limit_range"), f"limits.{name}")
    return nanos


def from_spend(spend: Spend) -> spend_limits_pb2.Spend:
    return to_message(
        spend_limits_pb2.Spend,
        spend,
        day_end_time=to_timestamp(next_day_us(spend.day_us)),
        month_end_time=to_timestamp(next_month_us(spend.month_us)),
    )
