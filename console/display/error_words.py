"""Says in plain words what each reason of an error means, and what owners and operators can do about it."""

from typing import Final, NamedTuple

from services.chassis.errors import Reason


class ErrorWords(NamedTuple):
    """A reason in words: what happened, as a short phrase, and advice to the owner of the key and to operators."""

    meaning: str
    owner_advice: str
    operator_advice: str


_CALLER_CHANGES: Final = "The program that calls has to change; nothing is wrong with the service."
_OWNER_CHANGES: Final = "The owner of the account can change this; nothing is wrong with the service."
_CREDENTIALS: Final = "The user has to sign in again. Many in a short time may be an attack: see the audit log."
_CERTIFICATES: Final = "Check the certificates of the processes, and that their clocks agree."
_RETRY: Final = "Send the request again after the time in the retry-after header."
_TELL_US: Final = "Send the request again. If it fails still, tell the operator its request ID."

_WORDS: Final = {
    Reason.REQUEST_INVALID: ErrorWords(
        "The request is not valid",
        "Correct the field that the message names: the body is not JSON, or a field is missing or wrong.",
        _CALLER_CHANGES,
    ),
    Reason.MODEL_UNKNOWN: ErrorWords(
        "The model is not offered, or not to this key",
        "Use a class that the key may use: the key's page lists them.",
        _CALLER_CHANGES,
    ),
    Reason.CONTEXT_EXCEEDED: ErrorWords(
        "The prompt is too long for the class",
        "Shorten the conversation, or use a class with a larger context.",
        "Many of them: the class may need a model with a larger context.",
    ),
    Reason.KEY_INVALID: ErrorWords(
        "The key is missing, wrong, revoked or expired",
        "Look for the key in the list of keys. If it was revoked or has expired, create another and replace it.",
        "The caller has to replace the key. Many in a short time: a key in use was revoked, or keys are being guessed.",
    ),
    Reason.CREDITS_EXHAUSTED: ErrorWords(
        "The credit is spent", "Add credit.", "Grant credit on the account's page, or leave it to the owner."
    ),
    Reason.SCOPE_MISSING: ErrorWords(
        "The key may not do this", "Create a key with the scope that the message names.", _OWNER_CHANGES
    ),
    Reason.ACCOUNT_SUSPENDED: ErrorWords(
        "The account is suspended",
        "Ask the operator of the service why.",
        "Resume the account on its page when the cause is gone.",
    ),
    Reason.NOT_FOUND: ErrorWords(
        "There is nothing at this address", "Check the base address and the path, or the ID.", _CALLER_CHANGES
    ),
    Reason.MODEL_NOT_FOUND: ErrorWords(
        "A model was looked up that is not offered, or not to this key",
        "List the models with the same key: it names those that it may use.",
        _CALLER_CHANGES,
    ),
    Reason.ENDPOINT_NOT_OFFERED: ErrorWords(
        "The endpoint is not offered",
        "Use chat completions: embeddings, completions and responses are not offered.",
        _CALLER_CHANGES,
    ),
    Reason.METHOD_NOT_ALLOWED: ErrorWords(
        "The address does not support this HTTP method", "Chats are sent with POST.", _CALLER_CHANGES
    ),
    Reason.BODY_TIMEOUT: ErrorWords(
        "The request did not arrive in time",
        "Check the client's connection, then send the request again.",
        "Many of them: look at the network and the proxy before the edges.",
    ),
    Reason.REQUEST_RESOLVED: ErrorWords(
        "The request was abandoned before its answer began",
        "Send it again with another idempotency key.",
        "Many of them: a process stalled or was restarted. See the runbook for metering.",
    ),
    Reason.REQUEST_REPEATED: ErrorWords(
        "The request was sent before with the same idempotency key",
        "The first request counts: the error names it. For another answer, use another idempotency key.",
        _CALLER_CHANGES,
    ),
    Reason.IDEMPOTENCY_KEY_REUSED: ErrorWords(
        "An idempotency key was used again for another request",
        "Use a new idempotency key for each request.",
        _CALLER_CHANGES,
    ),
    Reason.BODY_TOO_LARGE: ErrorWords(
        "The request is too large",
        "Send at most 16 MB: shorten the conversation or shrink its images.",
        _CALLER_CHANGES,
    ),
    Reason.ENCODING_NOT_SUPPORTED: ErrorWords(
        "The request is compressed", "Send the body without compression.", _CALLER_CHANGES
    ),
    Reason.RATE_LIMITED: ErrorWords(
        "More requests or tokens in a minute than the key may use",
        "Wait for the time in the retry-after header, spread the requests, or raise the key's limits.",
        _OWNER_CHANGES,
    ),
    Reason.TOO_MANY_AT_ONCE: ErrorWords(
        "More requests at once than the key may run",
        "Wait until one has ended, or raise the key's limit of concurrent requests.",
        _OWNER_CHANGES,
    ),
    Reason.TOO_MANY_WRONG_KEYS: ErrorWords(
        "An address sent too many wrong keys",
        "Correct the key in the program that calls, then wait a minute.",
        "Keys are being guessed, or a program keeps using a revoked key. The edges limit such an address.",
    ),
    Reason.CREDITS_HELD: ErrorWords(
        "The credit is held by running requests",
        "Wait until one has ended, set a lower max_tokens, or add credit.",
        "The account has little credit left for what it runs at once: its owner can add some.",
    ),
    Reason.SPEND_LIMIT_EXCEEDED: ErrorWords(
        "The spend limit of the day or the month is reached",
        "Wait until it starts anew, or raise the spend limit of the key or the account.",
        _OWNER_CHANGES,
    ),
    Reason.SPEND_LIMIT_SPENT: ErrorWords(
        "The spend limit in all is reached", "Raise the spend limit of the key or the account.", _OWNER_CHANGES
    ),
    Reason.SATURATED: ErrorWords(
        "There is no capacity for another chat",
        _RETRY,
        "The models of a class are full, or an edge is: see which under Routes, and add a model, a limit or an edge.",
    ),
    Reason.UPSTREAM_FAILED: ErrorWords(
        "No model of the class answered",
        "Send the request again, or use another class until it is back.",
        "See which provider fails under Routes; the runbook is provider-down.md.",
    ),
    Reason.UPSTREAM_REFUSED: ErrorWords(
        "No model of the class accepts the request",
        "Leave out what the message names, or use another class.",
        "A model lacks a feature that callers use: another model in the class may have it.",
    ),
    Reason.CONTENT_POLICY: ErrorWords(
        "The provider's content policy does not allow the request",
        "Change what is asked. Another class may have another policy.",
        _CALLER_CHANGES,
    ),
    Reason.UNAVAILABLE: ErrorWords(
        "A part of the service was not available",
        _RETRY,
        "See which process does not answer under Live status; the runbooks say what to do.",
    ),
    Reason.MAINTENANCE: ErrorWords(
        "The service is in maintenance", _RETRY, "End the maintenance when the work is done."
    ),
    Reason.CALLER_NOT_ALLOWED: ErrorWords(
        "A program called what its certificate does not allow", _TELL_US, _CERTIFICATES
    ),
    Reason.CALLER_NOT_GRANTED: ErrorWords(
        "A program called for an account that it was not granted",
        "Grant the program the account, if it should have it.",
        "Grant the program the account, or end the program.",
    ),
    Reason.ACCESS_TOKEN_INVALID: ErrorWords("A console's access token was not accepted", _TELL_US, _CERTIFICATES),
    Reason.ROLE_MISSING: ErrorWords(
        "The user's role does not allow this", "Ask an owner of the account for another role.", _OWNER_CHANGES
    ),
    Reason.STEP_UP_REQUIRED: ErrorWords(
        "The user has to confirm who they are", "Confirm with a passkey or a code, then repeat it.", _CREDENTIALS
    ),
    Reason.SIGN_IN_FAILED: ErrorWords("A sign-in failed", "Try again, or ask for a new sign-in link.", _CREDENTIALS),
    Reason.SESSION_ENDED: ErrorWords("The session has ended", "Sign in again.", _CREDENTIALS),
    Reason.TOO_MANY_SIGN_INS: ErrorWords(
        "There were too many attempts to sign in", "Wait a few minutes, then try again.", _CREDENTIALS
    ),
    Reason.INTERNAL: ErrorWords(
        "Legato failed", _TELL_US, "A defect: look for the request ID in the logs, and report it."
    ),
}


def error_words(reason: str) -> ErrorWords:
    """Returns the words of a reason; general ones for a reason of a newer release."""
    if reason in Reason.__members__:
        return _WORDS[Reason(reason)]
    return ErrorWords(reason, _TELL_US, "A process of a newer release gave this reason: update the console.")
