"""The table of errors.

Code that refuses raises `LegatoError` with a `Reason`. The table maps each reason to its gRPC code, HTTP status and
OpenAI type; the reason itself travels between processes, because gRPC has no code for "out of credit". Any other
exception becomes INTERNAL, and its text never leaves the process: it may quote message content.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status

DOMAIN = "legato"
_PARAM = "param"
_ORIGINAL_REQUEST = "original_request_id"


class Reason(StrEnum):
    REQUEST_INVALID = "REQUEST_INVALID"
    MODEL_UNKNOWN = "MODEL_UNKNOWN"
    CONTEXT_EXCEEDED = "CONTEXT_EXCEEDED"
    KEY_INVALID = "KEY_INVALID"
    CREDITS_EXHAUSTED = "CREDITS_EXHAUSTED"
    SCOPE_MISSING = "SCOPE_MISSING"
    ACCOUNT_SUSPENDED = "ACCOUNT_SUSPENDED"
    NOT_FOUND = "NOT_FOUND"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    ENDPOINT_NOT_OFFERED = "ENDPOINT_NOT_OFFERED"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED"
    BODY_TIMEOUT = "BODY_TIMEOUT"
    REQUEST_RESOLVED = "REQUEST_RESOLVED"
    REQUEST_REPEATED = "REQUEST_REPEATED"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED"
    BODY_TOO_LARGE = "BODY_TOO_LARGE"
    ENCODING_NOT_SUPPORTED = "ENCODING_NOT_SUPPORTED"
    RATE_LIMITED = "RATE_LIMITED"
    TOO_MANY_AT_ONCE = "TOO_MANY_AT_ONCE"
    TOO_MANY_WRONG_KEYS = "TOO_MANY_WRONG_KEYS"
    CREDITS_HELD = "CREDITS_HELD"
    SPEND_LIMIT_EXCEEDED = "SPEND_LIMIT_EXCEEDED"
    SPEND_LIMIT_SPENT = "SPEND_LIMIT_SPENT"
    SATURATED = "SATURATED"
    UPSTREAM_FAILED = "UPSTREAM_FAILED"
    UPSTREAM_REFUSED = "UPSTREAM_REFUSED"
    UNAVAILABLE = "UNAVAILABLE"
    MAINTENANCE = "MAINTENANCE"
    CALLER_NOT_ALLOWED = "CALLER_NOT_ALLOWED"
    ACCESS_TOKEN_INVALID = "ACCESS_TOKEN_INVALID"  # noqa: S105
    ROLE_MISSING = "ROLE_MISSING"
    STEP_UP_REQUIRED = "STEP_UP_REQUIRED"
    SIGN_IN_FAILED = "SIGN_IN_FAILED"
    SESSION_ENDED = "SESSION_ENDED"
    TOO_MANY_SIGN_INS = "TOO_MANY_SIGN_INS"
    INTERNAL = "INTERNAL"


@dataclass(frozen=True, slots=True)
class Wire:
    grpc_code: grpc.StatusCode
    http_status: int
    type: str
    # OpenAI's `code`, for programs to act on.
    code: str | None = None


_INVALID = "invalid_request_error"
# Raised between processes, and shown by the console at most; a client of the API would see an internal error.
_INSIDE = (500, "api_error", "internal_error")

WIRE: dict[Reason, Wire] = {
    Reason.REQUEST_INVALID: Wire(grpc.StatusCode.INVALID_ARGUMENT, 400, _INVALID),
    Reason.MODEL_UNKNOWN: Wire(grpc.StatusCode.INVALID_ARGUMENT, 400, _INVALID, "model_not_found"),
    Reason.CONTEXT_EXCEEDED: Wire(grpc.StatusCode.INVALID_ARGUMENT, 400, _INVALID, "context_length_exceeded"),
    Reason.KEY_INVALID: Wire(grpc.StatusCode.UNAUTHENTICATED, 401, "authentication_error", "invalid_api_key"),
    Reason.CREDITS_EXHAUSTED: Wire(
        grpc.StatusCode.FAILED_PRECONDITION, 402, "insufficient_quota", "insufficient_quota"
    ),
    Reason.SCOPE_MISSING: Wire(grpc.StatusCode.PERMISSION_DENIED, 403, "permission_error", "missing_scope"),
    Reason.ACCOUNT_SUSPENDED: Wire(grpc.StatusCode.PERMISSION_DENIED, 403, "permission_error", "account_suspended"),
    Reason.NOT_FOUND: Wire(grpc.StatusCode.NOT_FOUND, 404, _INVALID),
    Reason.MODEL_NOT_FOUND: Wire(grpc.StatusCode.NOT_FOUND, 404, _INVALID, "model_not_found"),
    Reason.ENDPOINT_NOT_OFFERED: Wire(grpc.StatusCode.UNIMPLEMENTED, 404, _INVALID, "endpoint_not_offered"),
    Reason.METHOD_NOT_ALLOWED: Wire(grpc.StatusCode.UNIMPLEMENTED, 405, _INVALID, "method_not_allowed"),
    Reason.BODY_TIMEOUT: Wire(grpc.StatusCode.DEADLINE_EXCEEDED, 408, _INVALID, "request_timeout"),
    Reason.REQUEST_RESOLVED: Wire(grpc.StatusCode.ABORTED, 409, _INVALID, "request_resolved"),
    Reason.REQUEST_REPEATED: Wire(grpc.StatusCode.ABORTED, 409, _INVALID, "request_already_processed"),
    Reason.IDEMPOTENCY_KEY_REUSED: Wire(grpc.StatusCode.INVALID_ARGUMENT, 400, _INVALID, "idempotency_key_reused"),
    Reason.BODY_TOO_LARGE: Wire(grpc.StatusCode.INVALID_ARGUMENT, 413, _INVALID, "request_too_large"),
    Reason.ENCODING_NOT_SUPPORTED: Wire(grpc.StatusCode.INVALID_ARGUMENT, 415, _INVALID, "unsupported_encoding"),
    Reason.RATE_LIMITED: Wire(grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "rate_limit_exceeded"),
    Reason.TOO_MANY_AT_ONCE: Wire(
        grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "concurrency_limit_exceeded"
    ),
    Reason.TOO_MANY_WRONG_KEYS: Wire(
        grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "too_many_wrong_keys"
    ),
    Reason.CREDITS_HELD: Wire(grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "credits_held"),
    Reason.SPEND_LIMIT_EXCEEDED: Wire(
        grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "spend_limit_exceeded"
    ),
    # The limit in all, which no time resets.
    Reason.SPEND_LIMIT_SPENT: Wire(
        grpc.StatusCode.FAILED_PRECONDITION, 402, "insufficient_quota", "spend_limit_exceeded"
    ),
    Reason.SATURATED: Wire(grpc.StatusCode.RESOURCE_EXHAUSTED, 429, "rate_limit_error", "saturated"),
    Reason.UPSTREAM_FAILED: Wire(grpc.StatusCode.UNAVAILABLE, 502, "api_error", "upstream_error"),
    Reason.UPSTREAM_REFUSED: Wire(grpc.StatusCode.FAILED_PRECONDITION, 502, "api_error", "upstream_error"),
    Reason.UNAVAILABLE: Wire(grpc.StatusCode.UNAVAILABLE, 503, "api_error", "service_unavailable"),
    Reason.MAINTENANCE: Wire(grpc.StatusCode.UNAVAILABLE, 503, "api_error", "maintenance"),
    Reason.CALLER_NOT_ALLOWED: Wire(grpc.StatusCode.PERMISSION_DENIED, *_INSIDE),
    Reason.ACCESS_TOKEN_INVALID: Wire(grpc.StatusCode.UNAUTHENTICATED, *_INSIDE),
    Reason.ROLE_MISSING: Wire(grpc.StatusCode.PERMISSION_DENIED, *_INSIDE),
    Reason.STEP_UP_REQUIRED: Wire(grpc.StatusCode.FAILED_PRECONDITION, *_INSIDE),
    Reason.SIGN_IN_FAILED: Wire(grpc.StatusCode.UNAUTHENTICATED, *_INSIDE),
    Reason.SESSION_ENDED: Wire(grpc.StatusCode.UNAUTHENTICATED, *_INSIDE),
    Reason.TOO_MANY_SIGN_INS: Wire(grpc.StatusCode.RESOURCE_EXHAUSTED, *_INSIDE),
    Reason.INTERNAL: Wire(grpc.StatusCode.INTERNAL, 500, "api_error", "internal_error"),
}


class LegatoError(Exception):
    """A refusal that the caller may see: the message must quote nothing that the caller sent."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        original_request_id: str | None = None,
        figures: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s
        # The first request, where this one is a repeat.
        self.original_request_id = original_request_id
        # Numbers for programs beside the message, such as the limit that was reached.
        self.figures = figures or {}

    @property
    def wire(self) -> Wire:
        return WIRE[self.reason]


def internal_error() -> LegatoError:
    return LegatoError(Reason.INTERNAL, "Something went wrong on our side.")


def unavailable(what: str) -> LegatoError:
    return LegatoError(Reason.UNAVAILABLE, f"{what} is not available right now. Please retry.", retry_after_s=1)


def credits_held() -> LegatoError:
    """Builds the error for an account whose credit is all held by its own running requests."""
    message = "The account's credit is held by its own running requests. Please retry when one has ended."
    return LegatoError(Reason.CREDITS_HELD, message, retry_after_s=1)


def forget_origin(error: BaseException | None) -> None:
    """Clears the tracebacks of an error that was reported for good, and of those it was raised from.

    A task or a cache often refers to the error. Such a reference cycle would wait for the garbage collector, and keep
    everything in its frames, such as a prompt of megabytes."""
    while error is not None:
        error.__traceback__ = None
        error = error.__context__


def to_status(error: LegatoError) -> Status:
    status = Status(code=error.wire.grpc_code.value[0], message=error.message)
    info = error_details_pb2.ErrorInfo(reason=error.reason.value, domain=DOMAIN)
    if error.param is not None:
        info.metadata[_PARAM] = error.param
    if error.original_request_id is not None:
        info.metadata[_ORIGINAL_REQUEST] = error.original_request_id
    for name, figure in error.figures.items():
        info.metadata[name] = str(figure)
    status.details.add().Pack(info)
    if error.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo(retry_delay=Duration(nanos=0))
        retry.retry_delay.FromMicroseconds(round(error.retry_after_s * 1e6))
        status.details.add().Pack(retry)
    return status


def from_status(status: Status) -> LegatoError:
    """Rebuilds the error that another process raised; a reason unknown here (a newer process) becomes INTERNAL."""
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    retry_after_s = None
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            retry_after_s = retry.retry_delay.ToMicroseconds() / 1e6
    if info.domain != DOMAIN or info.reason not in Reason.__members__:
        return internal_error()
    details = dict(info.metadata)
    return LegatoError(
        Reason(info.reason),
        status.message,
        param=details.pop(_PARAM, None),
        retry_after_s=retry_after_s,
        original_request_id=details.pop(_ORIGINAL_REQUEST, None),
        figures={name: int(figure) for name, figure in details.items()},
    )
