"""The table of errors.

Code that refuses raises `LegatoError` with a `Reason`. The table maps each reason to its gRPC code, HTTP status and
OpenAI type; the reason itself travels between processes, because gRPC has no code for "out of credit", and so do the
id and the figures of its sentence. Any other exception becomes INTERNAL, and its text never leaves the process: it may
quote message content.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status
from grpc import StatusCode as Code

from legato_protos.type.v1.sentence_pb2 import Sentence as SentenceMessage
from services.chassis.sentence import Sentence
from services.chassis.sentence_messages import from_sentence_message, to_sentence_message

DOMAIN = "legato"
_PARAM = "param"
_ORIGINAL_REQUEST = "original_request_id"
# The figure that tells an account which another session has locked from a service that is away.
ACCOUNT_LOCKED = "account_locked"


@dataclass(frozen=True, slots=True)
class Wire:
    grpc_code: Code
    http_status: int
    type: str
    # OpenAI's `code`, for programs to act on.
    code: str | None = None


_INVALID = "invalid_request_error"
_PERMISSION = "permission_error"
_QUOTA = "insufficient_quota"
_RATE = "rate_limit_error"
_API = "api_error"
# Raised between processes, and shown by the console at most; a client of the API would see an internal error.
_INSIDE = (500, _API, "internal_error")


class Reason(StrEnum):
    wire: Wire

    def __new__(cls, name: str, *wire: Any) -> "Reason":
        reason = str.__new__(cls, name)
        reason._value_ = name
        reason.wire = Wire(*wire)
        return reason

    REQUEST_INVALID = "REQUEST_INVALID", Code.INVALID_ARGUMENT, 400, _INVALID
    MODEL_UNKNOWN = "MODEL_UNKNOWN", Code.INVALID_ARGUMENT, 400, _INVALID, "model_not_found"
    CONTEXT_EXCEEDED = "CONTEXT_EXCEEDED", Code.INVALID_ARGUMENT, 400, _INVALID, "context_length_exceeded"
    KEY_INVALID = "KEY_INVALID", Code.UNAUTHENTICATED, 401, "authentication_error", "invalid_api_key"
    CREDITS_EXHAUSTED = "CREDITS_EXHAUSTED", Code.FAILED_PRECONDITION, 402, _QUOTA, "insufficient_quota"
    SCOPE_MISSING = "SCOPE_MISSING", Code.PERMISSION_DENIED, 403, _PERMISSION, "missing_scope"
    ACCOUNT_SUSPENDED = "ACCOUNT_SUSPENDED", Code.PERMISSION_DENIED, 403, _PERMISSION, "account_suspended"
    NOT_FOUND = "NOT_FOUND", Code.NOT_FOUND, 404, _INVALID
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND", Code.NOT_FOUND, 404, _INVALID, "model_not_found"
    ENDPOINT_NOT_OFFERED = "ENDPOINT_NOT_OFFERED", Code.UNIMPLEMENTED, 404, _INVALID, "endpoint_not_offered"
    METHOD_NOT_ALLOWED = "METHOD_NOT_ALLOWED", Code.UNIMPLEMENTED, 405, _INVALID, "method_not_allowed"
    BODY_TIMEOUT = "BODY_TIMEOUT", Code.DEADLINE_EXCEEDED, 408, _INVALID, "request_timeout"
    REQUEST_RESOLVED = "REQUEST_RESOLVED", Code.ABORTED, 409, _INVALID, "request_resolved"
    REQUEST_REPEATED = "REQUEST_REPEATED", Code.ABORTED, 409, _INVALID, "request_already_processed"
    IDEMPOTENCY_KEY_REUSED = "IDEMPOTENCY_KEY_REUSED", Code.INVALID_ARGUMENT, 400, _INVALID, "idempotency_key_reused"
    BODY_TOO_LARGE = "BODY_TOO_LARGE", Code.INVALID_ARGUMENT, 413, _INVALID, "request_too_large"
    ENCODING_NOT_SUPPORTED = "ENCODING_NOT_SUPPORTED", Code.INVALID_ARGUMENT, 415, _INVALID, "unsupported_encoding"
    RATE_LIMITED = "RATE_LIMITED", Code.RESOURCE_EXHAUSTED, 429, _RATE, "rate_limit_exceeded"
    TOO_MANY_AT_ONCE = "TOO_MANY_AT_ONCE", Code.RESOURCE_EXHAUSTED, 429, _RATE, "concurrency_limit_exceeded"
    TOO_MANY_WRONG_KEYS = "TOO_MANY_WRONG_KEYS", Code.RESOURCE_EXHAUSTED, 429, _RATE, "too_many_wrong_keys"
    CREDITS_HELD = "CREDITS_HELD", Code.RESOURCE_EXHAUSTED, 429, _RATE, "credits_held"
    SPEND_LIMIT_EXCEEDED = "SPEND_LIMIT_EXCEEDED", Code.RESOURCE_EXHAUSTED, 429, _RATE, "spend_limit_exceeded"
    # The limit in all, which no time resets.
    SPEND_LIMIT_SPENT = "SPEND_LIMIT_SPENT", Code.FAILED_PRECONDITION, 402, _QUOTA, "spend_limit_exceeded"
    SATURATED = "SATURATED", Code.RESOURCE_EXHAUSTED, 429, _RATE, "saturated"
    UPSTREAM_FAILED = "UPSTREAM_FAILED", Code.UNAVAILABLE, 502, _API, "upstream_error"
    UPSTREAM_REFUSED = "UPSTREAM_REFUSED", Code.INVALID_ARGUMENT, 400, _INVALID, "request_not_supported"
    CONTENT_POLICY = "CONTENT_POLICY", Code.INVALID_ARGUMENT, 400, _INVALID, "content_policy_violation"
    UNAVAILABLE = "UNAVAILABLE", Code.UNAVAILABLE, 503, _API, "service_unavailable"
    MAINTENANCE = "MAINTENANCE", Code.UNAVAILABLE, 503, _API, "maintenance"
    CALLER_NOT_ALLOWED = "CALLER_NOT_ALLOWED", Code.PERMISSION_DENIED, *_INSIDE
    CALLER_NOT_GRANTED = "CALLER_NOT_GRANTED", Code.PERMISSION_DENIED, *_INSIDE
    ACCESS_TOKEN_INVALID = "ACCESS_TOKEN_INVALID", Code.UNAUTHENTICATED, *_INSIDE
    ROLE_MISSING = "ROLE_MISSING", Code.PERMISSION_DENIED, *_INSIDE
    STEP_UP_REQUIRED = "STEP_UP_REQUIRED", Code.FAILED_PRECONDITION, *_INSIDE
    SIGN_IN_FAILED = "SIGN_IN_FAILED", Code.UNAUTHENTICATED, *_INSIDE
    SESSION_ENDED = "SESSION_ENDED", Code.UNAUTHENTICATED, *_INSIDE
    TOO_MANY_SIGN_INS = "TOO_MANY_SIGN_INS", Code.RESOURCE_EXHAUSTED, *_INSIDE
    INTERNAL = "INTERNAL", Code.INTERNAL, 500, _API, "internal_error"


class LegatoError(Exception):
    """A refusal that the caller may see: the sentence must quote nothing that the caller sent."""

    def __init__(
        self,
        reason: Reason,
        sentence: Sentence,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        original_request_id: str | None = None,
        figures: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(sentence)
        self.reason = reason
        self.sentence = sentence
        self.param = param
        self.retry_after_s = retry_after_s
        # The first request, where this one is a repeat.
        self.original_request_id = original_request_id
        # Numbers for programs beside those of the sentence, such as what is left of each limit.
        self.figures = figures or {}

    @property
    def wire(self) -> Wire:
        return self.reason.wire

    @property
    def message(self) -> str:
        """The sentence in English, which is all that clients get."""
        return str(self.sentence)


def internal_error() -> LegatoError:
    return LegatoError(Reason.INTERNAL, Sentence("internal"))


def unavailable(what: str) -> LegatoError:
    return LegatoError(Reason.UNAVAILABLE, Sentence("unavailable", what=what), retry_after_s=1)


def credits_held() -> LegatoError:
    """Builds the error for an account whose credit is all held by its own running requests."""
    return LegatoError(Reason.CREDITS_HELD, Sentence("credits_held"), retry_after_s=1)


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
    if error.sentence.id:
        # Not in the metadata above, of which earlier releases take everything else for a number.
        status.details.add().Pack(to_sentence_message(error.sentence))
    if error.retry_after_s is not None:
        retry = error_details_pb2.RetryInfo(retry_delay=Duration(nanos=0))
        retry.retry_delay.FromMicroseconds(round(error.retry_after_s * 1e6))
        status.details.add().Pack(retry)
    return status


def from_status(status: Status) -> LegatoError:
    """Rebuilds the error that another process raised; a reason unknown here (a newer process) becomes INTERNAL."""
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    words = SentenceMessage()
    retry_after_s = None
    for detail in status.details:
        if detail.Is(info.DESCRIPTOR):
            detail.Unpack(info)
        elif detail.Is(words.DESCRIPTOR):
            detail.Unpack(words)
        elif detail.Is(retry.DESCRIPTOR):
            detail.Unpack(retry)
            retry_after_s = retry.retry_delay.ToMicroseconds() / 1e6
    if info.domain != DOMAIN or info.reason not in Reason.__members__:
        return internal_error()
    details = dict(info.metadata)
    return LegatoError(
        Reason(info.reason),
        from_sentence_message(words, status.message),
        param=details.pop(_PARAM, None),
        retry_after_s=retry_after_s,
        original_request_id=details.pop(_ORIGINAL_REQUEST, None),
        figures={name: int(figure) for name, figure in details.items()},
    )
