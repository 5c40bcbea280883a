"""The errors of each endpoint, with an example of the message; the rest comes from the error table."""

from typing import Final

from edge.api.app import Route
from services.chassis.errors import Reason

MESSAGES: Final = {
    Reason.REQUEST_INVALID: "messages must not be empty.",
    Reason.MODEL_UNKNOWN: "There is no such model. Use one of auto, mezzo, forte, fortissimo.",
    Reason.CONTEXT_EXCEEDED: "The prompt is too long for the models of this class.",
    Reason.KEY_INVALID: "The API key is not valid.",
    Reason.CREDITS_EXHAUSTED: "The account's credit does not cover this request.",
    Reason.SCOPE_MISSING: "This API key does not have the required scope: usage.",
    Reason.ACCOUNT_SUSPENDED: "The account is suspended.",
    Reason.NOT_FOUND: "There is no such request.",
    Reason.MODEL_NOT_FOUND: "There is no such model.",
    Reason.ENDPOINT_NOT_OFFERED: "This endpoint is not supported: use chat completions.",
    Reason.METHOD_NOT_ALLOWED: "This endpoint does not support this method.",
    Reason.BODY_TIMEOUT: "The body did not arrive within 60 seconds.",
    Reason.REQUEST_RESOLVED: "This request has ended, or was never reserved.",
    Reason.REQUEST_REPEATED: "A request with this Idempotency-Key is running or has ended.",
    Reason.IDEMPOTENCY_KEY_REUSED: "This Idempotency-Key was used with another body.",
    Reason.BODY_TOO_LARGE: "The body is larger than 16 MB.",
    Reason.ENCODING_NOT_SUPPORTED: "Send the body without a content-encoding.",
    Reason.RATE_LIMITED: "This key has reached its limit of requests per minute.",
    Reason.TOO_MANY_AT_ONCE: "This key has reached its limit of concurrent requests.",
    Reason.TOO_MANY_WRONG_KEYS: "Too many wrong API keys from this address.",
    Reason.SPEND_LIMIT_EXCEEDED: "The key's daily spend limit is spent. It starts anew at midnight, in UTC.",
    Reason.SPEND_LIMIT_SPENT: "The key's total spend limit is spent. Raise the limit to continue.",
    Reason.CREDITS_HELD: "The account's credit is held by its own running requests. Please retry when one has ended.",
    Reason.SATURATED: "The service is saturated right now. Please retry.",
    Reason.UPSTREAM_FAILED: "The model's answer was interrupted.",
    Reason.UPSTREAM_REFUSED: "The model did not accept the request.",
    Reason.UNAVAILABLE: "The router is not available right now. Please retry.",
    Reason.MAINTENANCE: "The service is under maintenance.",
    Reason.INTERNAL: "Something went wrong on our side.",
}

# The reason of errors between processes is never shown: to a client they are internal errors.
NEVER_SHOWN: Final = frozenset(
    {
        Reason.CALLER_NOT_ALLOWED,
        Reason.ACCESS_TOKEN_INVALID,
        Reason.ROLE_MISSING,
        Reason.STEP_UP_REQUIRED,
        Reason.SIGN_IN_FAILED,
        Reason.SESSION_ENDED,
        Reason.TOO_MANY_SIGN_INS,
    }
)

# Errors of the HTTP server, before a route is known, and errors that can occur anywhere.
_ANYWHERE: Final = (Reason.REQUEST_INVALID, Reason.METHOD_NOT_ALLOWED, Reason.BODY_TIMEOUT, Reason.INTERNAL)
_WITH_A_KEY: Final = (
    Reason.KEY_INVALID,
    Reason.ACCOUNT_SUSPENDED,
    Reason.TOO_MANY_WRONG_KEYS,
    Reason.UNAVAILABLE,
)
_WITH_A_SCOPE: Final = (Reason.SCOPE_MISSING, Reason.RATE_LIMITED)
_OF_PATH: Final = {
    "/v1/chat/completions": (
        Reason.MODEL_UNKNOWN,
        Reason.CONTEXT_EXCEEDED,
        Reason.IDEMPOTENCY_KEY_REUSED,
        Reason.CREDITS_EXHAUSTED,
        Reason.REQUEST_REPEATED,
        Reason.REQUEST_RESOLVED,
        Reason.BODY_TOO_LARGE,
        Reason.ENCODING_NOT_SUPPORTED,
        Reason.TOO_MANY_AT_ONCE,
        Reason.CREDITS_HELD,
        Reason.SPEND_LIMIT_EXCEEDED,
        Reason.SPEND_LIMIT_SPENT,
        Reason.SATURATED,
        Reason.UPSTREAM_FAILED,
        Reason.UPSTREAM_REFUSED,
        Reason.MAINTENANCE,
    ),
    # A path parameter that is empty or contains a slash makes another path.
    "/v1/models/{model_id}": (Reason.MODEL_NOT_FOUND, Reason.NOT_FOUND),
    "/v1/usage/requests/{request_id}": (Reason.NOT_FOUND,),
}


def reasons_of(route: Route) -> list[Reason]:
    """Keeps the order of the error table."""
    reasons = {*_ANYWHERE, *_OF_PATH.get(route.path, ())}
    if not route.is_public:
        reasons |= {*_WITH_A_KEY}
    if route.scope is not None:
        reasons |= {*_WITH_A_SCOPE}
    if not route.is_offered:
        reasons.add(Reason.ENDPOINT_NOT_OFFERED)
    return [reason for reason in Reason if reason in reasons]
