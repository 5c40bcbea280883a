"""Describes endpoints in the OpenAPI document: their errors, from the error table, and their headers."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec
from pydantic import BaseModel

from edge.wire.responses import error_body, error_headers
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence

# Stands for null in examples until the document is complete: FastAPI leaves out whatever is null.
NULL: Final = "<null>"
# Of the examples.
REQUEST_ID: Final = "019a8c2f5b3e7c10a1f24d6e8b90c3d5"

# The `responses` of FastAPI's decorators.
Responses = dict[int | str, dict[str, object]]

RATE_HEADERS: Final = tuple(
    f"x-ratelimit-{what}-{of}" for of in ("requests", "tokens") for what in ("limit", "remaining", "reset")
)
_COUNT: Final = {"type": "integer", "minimum": 0}
# Components of the document, by name.
HEADERS: Final[dict[str, dict[str, object]]] = {
    name: {"description": description, "schema": schema}
    for name, description, schema in [
        ("x-request-id", "The id of this request.", {"type": "string", "pattern": "^[0-9a-f]{32}$"}),
        ("request-id", "The same, as Anthropic's clients read it.", {"type": "string", "pattern": "^[0-9a-f]{32}$"}),
        *(
            (name, "The time until the limit is fully replenished, for example `6m0s`.", {"type": "string"})
            if "reset" in name
            else (name, "The limit per minute, or what remains of it.", _COUNT)
            for name in RATE_HEADERS
        ),
        ("x-legato-max-tokens", "The maximum number of tokens of the answer.", _COUNT),
        ("x-legato-attempt", "The number of models that were called.", _COUNT),
        (
            "x-legato-ignored",
            "Fields that may change an answer, and that the model was called without.",
            {"type": "string"},
        ),
        ("retry-after", "Seconds to wait.", _COUNT),
        ("retry-after-ms", "Milliseconds to wait.", _COUNT),
        ("x-should-retry", "`false` where a repeat cannot help.", {"enum": ["false"]}),
        ("x-original-request-id", "The id of the first request with this Idempotency-Key.", {"type": "string"}),
        ("allow", "The methods of this endpoint.", {"type": "string"}),
    ]
}
# Headers that errors of a status may have, in addition to those of `error_headers`.
_HEADERS_OF_STATUS: Final = {405: ("allow",), 409: ("x-original-request-id",), 429: ("retry-after", "retry-after-ms")}

# An example of what each error that a client may be sent says.
EXAMPLES: Final = {
    Reason.REQUEST_INVALID: Sentence("messages_empty"),
    Reason.MODEL_UNKNOWN: Sentence("model_unknown_use", models="auto, mezzo, forte, fortissimo"),
    Reason.CONTEXT_EXCEEDED: Sentence("prompt_too_long", most=131072),
    Reason.KEY_INVALID: Sentence("api_key_invalid"),
    Reason.CREDITS_EXHAUSTED: Sentence("credit_too_small"),
    Reason.SCOPE_MISSING: Sentence("scope_missing", scope="usage"),
    Reason.ACCOUNT_SUSPENDED: Sentence("account_suspended"),
    Reason.NOT_FOUND: Sentence("thing_unknown", what="request"),
    Reason.MODEL_NOT_FOUND: Sentence("model_unknown"),
    Reason.ENDPOINT_NOT_OFFERED: Sentence("endpoint_not_offered"),
    Reason.METHOD_NOT_ALLOWED: Sentence("method_not_allowed"),
    Reason.BODY_TIMEOUT: Sentence("body_late", within_s=60),
    Reason.REQUEST_RESOLVED: Sentence("request_resolved"),
    Reason.REQUEST_REPEATED: Sentence("request_repeated", request_id=REQUEST_ID),
    Reason.IDEMPOTENCY_KEY_REUSED: Sentence("idempotency_key_reused"),
    Reason.BODY_TOO_LARGE: Sentence("body_too_large", most_mb=16),
    Reason.ENCODING_NOT_SUPPORTED: Sentence("body_encoded"),
    Reason.RATE_LIMITED: Sentence("rate_limit", what="requests", most=60),
    Reason.TOO_MANY_AT_ONCE: Sentence("concurrent_requests", most=8),
    Reason.TOO_MANY_WRONG_KEYS: Sentence("wrong_keys"),
    Reason.SPEND_LIMIT_EXCEEDED: Sentence("spend_limit_until", whose="key's", period="daily", when="at midnight"),
    Reason.SPEND_LIMIT_SPENT: Sentence("spend_limit_spent", whose="key's", period="total"),
    Reason.CREDITS_HELD: Sentence("credits_held"),
    Reason.SATURATED: Sentence("saturated", what="The service"),
    Reason.UPSTREAM_FAILED: Sentence("answer_interrupted"),
    Reason.UPSTREAM_REFUSED: Sentence("field_not_accepted", field="seed"),
    Reason.CONTENT_POLICY: Sentence("content_policy"),
    Reason.UNAVAILABLE: Sentence("unavailable", what="The router"),
    # The operator's own words.
    Reason.MAINTENANCE: Sentence.verbatim("The service is under maintenance."),
    Reason.INTERNAL: Sentence("internal"),
}

# Errors of the HTTP server, before a route is known, and errors that can occur anywhere.
_ANYWHERE: Final = (Reason.REQUEST_INVALID, Reason.METHOD_NOT_ALLOWED, Reason.BODY_TIMEOUT, Reason.INTERNAL)
_WITH_A_KEY: Final = (Reason.KEY_INVALID, Reason.ACCOUNT_SUSPENDED, Reason.TOO_MANY_WRONG_KEYS, Reason.UNAVAILABLE)
_WITH_A_SCOPE: Final = (Reason.SCOPE_MISSING, Reason.RATE_LIMITED)


class Error(BaseModel):
    """An error. Programs should use `code`; `param` is the field that caused the error, if any."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(BaseModel):
    """The shape of every error."""

    error: Error


@dataclass(frozen=True, slots=True)
class ErrorShape:
    """The form in which an endpoint tells errors."""

    model: type[BaseModel]
    render: Callable[[LegatoError], object]


_SHAPE: Final = ErrorShape(ErrorBody, lambda error: msgspec.json.decode(error_body(error)))


def errors(
    *own: Reason,
    needs_key: bool = True,
    needs_scope: bool = True,
    headers: Iterable[str] = (),
    shape: ErrorShape = _SHAPE,
) -> Responses:
    """Describes the errors of an endpoint: its own, and those of every endpoint that needs a key and a scope. All of
    them may have the headers, but for a wrong method."""
    reasons = {*_ANYWHERE, *own, *(_WITH_A_KEY if needs_key else ()), *(_WITH_A_SCOPE if needs_scope else ())}
    by_status: dict[int, list[LegatoError]] = defaultdict(list)
    for reason in Reason:
        if reason in reasons:
            error = _example(reason)
            by_status[error.wire.http_status].append(error)
    return {
        status: _described(status, by_status[status], () if status == HTTPStatus.METHOD_NOT_ALLOWED else headers, shape)
        for status in sorted(by_status)
    }


def _described(
    status: int, examples: list[LegatoError], headers: Iterable[str], shape: ErrorShape
) -> dict[str, object]:
    by_code = {error.wire.code or error.reason.lower(): error for error in examples}
    names = [name.decode() for error in examples for name, _ in error_headers(error)]
    shown = {code: shape.render(error) for code, error in by_code.items()}
    return {
        "model": shape.model,
        "description": f"{HTTPStatus(status).phrase}: {', '.join(f'`{code}`' for code in by_code)}.",
        "headers": header_refs(*names, *_HEADERS_OF_STATUS.get(status, ()), *headers),
        "content": {"application/json": {"examples": example_values(shown)}},
    }


def example_values(values: Mapping[str, object]) -> dict[str, object]:
    return {name: {"value": replace_in(value, None, NULL)} for name, value in values.items()}


def replace_in(part: Any, old: object, new: object) -> Any:
    """Replaces a value wherever it is found in JSON."""
    if isinstance(part, dict):
        return {name: replace_in(value, old, new) for name, value in part.items()}
    if isinstance(part, list):
        return [replace_in(value, old, new) for value in part]
    return new if part == old else part


def header_refs(*names: str) -> dict[str, object]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in ("x-request-id", *names)}


def _example(reason: Reason) -> LegatoError:
    params = {Reason.REQUEST_INVALID: "messages", Reason.MODEL_UNKNOWN: "model", Reason.MODEL_NOT_FOUND: "model"}
    return LegatoError(
        reason,
        EXAMPLES[reason],
        param=params.get(reason),
        retry_after_s=1 if reason in (Reason.UNAVAILABLE, Reason.MAINTENANCE) else None,
        original_request_id=REQUEST_ID if reason is Reason.REQUEST_REPEATED else None,
    )
