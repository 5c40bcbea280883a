"""The errors of a call, from the statuses of gRPC."""

from enum import StrEnum
from typing import Any

import grpc
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

_DOMAIN = "legato"
_STATUS_DETAILS_KEY = "grpc-status-details-bin"
_REQUEST_ID_KEY = "x-request-id"


class Reason(StrEnum):
    """The reasons of the service's table of errors, and at the end those that only the client gives."""

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
    CONTENT_POLICY = "CONTENT_POLICY"
    UNAVAILABLE = "UNAVAILABLE"
    MAINTENANCE = "MAINTENANCE"
    CALLER_NOT_ALLOWED = "CALLER_NOT_ALLOWED"
    CALLER_NOT_GRANTED = "CALLER_NOT_GRANTED"
    ACCESS_TOKEN_INVALID = "ACCESS_TOKEN_INVALID"  # noqa: S105 Not a secret.
    ROLE_MISSING = "ROLE_MISSING"
    STEP_UP_REQUIRED = "STEP_UP_REQUIRED"
    SIGN_IN_FAILED = "SIGN_IN_FAILED"
    SESSION_ENDED = "SESSION_ENDED"
    TOO_MANY_SIGN_INS = "TOO_MANY_SIGN_INS"
    INTERNAL = "INTERNAL"
    CANCELLED = "CANCELLED"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"


class LegatoError(Exception):
    """A call that failed."""

    def __init__(
        self,
        reason: Reason | str,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        original_request_id: str | None = None,
    ) -> None:
        # The arguments from which a copy is made.
        super().__init__(reason, message)
        # Text where only a newer service knows it.
        self.reason = reason
        self.message = message
        # The field of the request that is wrong.
        self.param = param
        # A retry before cannot succeed.
        self.retry_after_s = retry_after_s
        # For the operator, and for `get_request` if the chat had begun.
        self.request_id = request_id
        # The first request with the same idempotency key.
        self.original_request_id = original_request_id

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class InvalidRequestError(LegatoError):
    """The request is wrong, whoever sends it."""


class AuthenticationError(LegatoError):
    """The API key is missing, wrong, revoked or expired."""


class PermissionDeniedError(LegatoError):
    """The key or the caller may not do this."""


class NotFoundError(LegatoError):
    """The request or model does not exist."""


class OutOfCreditError(LegatoError):
    """The account has no credit left, or has reached a spend limit that no time resets."""


class LimitError(LegatoError):
    """A limit is reached: retry after `retry_after_s`."""


class RepeatedRequestError(LegatoError):
    """The idempotency key was used before: `get_request(error.original_request_id)` tells what became of it."""


class UnavailableError(LegatoError):
    """The service, or the model behind it, did not answer."""


class DeadlineError(LegatoError):
    """The call took longer than its deadline. What was delivered is charged."""


_CLASSES: dict[grpc.StatusCode, type[LegatoError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequestError,
    grpc.StatusCode.UNAUTHENTICATED: AuthenticationError,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDeniedError,
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: LimitError,
    grpc.StatusCode.ABORTED: RepeatedRequestError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineError,
}
# FAILED_PRECONDITION has other reasons, too.
_CLASSES_BY_REASON: dict[Reason | str, type[LegatoError]] = {
    Reason.CREDITS_EXHAUSTED: OutOfCreditError,
    Reason.SPEND_LIMIT_SPENT: OutOfCreditError,
}
# Statuses that gRPC itself gives.
_REASONS = {
    grpc.StatusCode.INVALID_ARGUMENT: Reason.REQUEST_INVALID,
    grpc.StatusCode.NOT_FOUND: Reason.NOT_FOUND,
    grpc.StatusCode.UNIMPLEMENTED: Reason.ENDPOINT_NOT_OFFERED,
    grpc.StatusCode.UNAVAILABLE: Reason.UNAVAILABLE,
    grpc.StatusCode.CANCELLED: Reason.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED: Reason.DEADLINE_EXCEEDED,
}


def error_from(failure: grpc.RpcError) -> LegatoError:
    """Builds the error of a call that failed, of either kind."""
    # grpc.RpcError declares nothing; synchronous and aio errors have the same methods.
    call: Any = failure
    code: grpc.StatusCode = call.code()
    metadata = dict([*(call.initial_metadata() or ()), *(call.trailing_metadata() or ())])
    info, retry = ErrorInfo(), RetryInfo()
    retry_after_s = None
    for detail in Status.FromString(metadata.get(_STATUS_DETAILS_KEY, b"")).details:
        if detail.Is(ErrorInfo.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(RetryInfo.DESCRIPTOR):
            detail.Unpack(retry)
            retry_after_s = retry.retry_delay.ToMicroseconds() / 1e6
    reason: Reason | str
    if info.domain == _DOMAIN and info.reason:
        reason = Reason(info.reason) if info.reason in Reason.__members__ else info.reason
    else:
        reason = _REASONS.get(code, Reason.INTERNAL)
    kind = _CLASSES_BY_REASON.get(reason) or _CLASSES.get(code, LegatoError)
    return kind(
        reason,
        call.details() or "The call failed.",
        param=info.metadata.get("param"),
        retry_after_s=retry_after_s,
        request_id=metadata.get(_REQUEST_ID_KEY),
        original_request_id=info.metadata.get("original_request_id"),
    )
