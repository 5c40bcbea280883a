"""Converts admissions and corrections between the .proto's messages and the domain."""

from protos.metering.v1 import metering_pb2 as pb
from services.metering.limits import (
    RateAllowance,
    RateCharge,
    RateLimits,
    admission,
    correction,
    request_rate,
    token_rate,
)
from services.metering.wire.checked import LARGEST_TOKENS, checked_id, checked_limit, checked_tokens, invalid


def to_admission(request: pb.AdmitRequest, defaults: RateLimits) -> RateCharge:
    key_id = checked_id(request.key_id, "key_id")
    limits = _to_limits(request, defaults)
    if request.only_looks:
        return correction(key_id, limits, 0, 0)
    return admission(key_id, limits, checked_tokens(request.tokens))


def to_correction(request: pb.CorrectRequest, defaults: RateLimits) -> RateCharge:
    key_id = checked_id(request.key_id, "key_id")
    if abs(request.tokens) > LARGEST_TOKENS:
        raise invalid(f"A correction is by at most {LARGEST_TOKENS} tokens.", "tokens")
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


def from_correction(allowance: RateAllowance) -> pb.CorrectResponse:
    return pb.CorrectResponse()


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
