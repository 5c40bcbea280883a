"""Says in plain words what each reason of an error means, and what owners and operators can do about it."""

from typing import Final, NamedTuple

from console.display.language import N_, _
from services.chassis.errors import Reason


class ErrorWords(NamedTuple):
    """A reason in words: what happened, as a short phrase, and advice to the owner of the key and to operators."""

    meaning: str
    owner_advice: str
    operator_advice: str


_CALLER_CHANGES: Final = N_("The program that calls has to change; nothing is wrong with the service.")
_OWNER_CHANGES: Final = N_("The owner of the account can change this; nothing is wrong with the service.")
_CREDENTIALS: Final = N_("The user has to sign in again. Many in a short time may be an attack: see the audit log.")
_CERTIFICATES: Final = N_("Check the certificates of the processes, and that their clocks agree.")
_RETRY: Final = N_("Send the request again after the time in the retry-after header.")
_TELL_US: Final = N_("Send the request again. If it fails still, tell the operator its request ID.")

_WORDS: Final = {
    Reason.REQUEST_INVALID: ErrorWords(
        N_("The request is not valid"),
        N_("Correct the field that the message names: the body is not JSON, or a field is missing or wrong."),
        _CALLER_CHANGES,
    ),
    Reason.MODEL_UNKNOWN: ErrorWords(
        N_("The model is not offered, or not to this key"),
        N_("Use a class that the key may use: the key's page lists them."),
        _CALLER_CHANGES,
    ),
    Reason.CONTEXT_EXCEEDED: ErrorWords(
        N_("The prompt is too long for the class"),
        N_("Shorten the conversation, or use a class with a larger context."),
        N_("Many of them: the class may need a model with a larger context."),
    ),
    Reason.KEY_INVALID: ErrorWords(
        N_("The key is missing, wrong, revoked or expired"),
        N_("Look for the key in the list of keys. If it was revoked or has expired, create another and replace it."),
        N_("The caller has to replace the key. Many in a short time: a key in use was revoked, or keys are guessed."),
    ),
    Reason.CREDITS_EXHAUSTED: ErrorWords(
        N_("The credit is spent"),
        N_("Add credit."),
        N_("Grant credit on the account's page, or leave it to the owner."),
    ),
    Reason.SCOPE_MISSING: ErrorWords(
        N_("The key may not do this"), N_("Create a key with the scope that the message names."), _OWNER_CHANGES
    ),
    Reason.ACCOUNT_SUSPENDED: ErrorWords(
        N_("The account is suspended"),
        N_("Ask the operator of the service why."),
        N_("Resume the account on its page when the cause is gone."),
    ),
    Reason.NOT_FOUND: ErrorWords(
        N_("There is nothing at this address"), N_("Check the base address and the path, or the ID."), _CALLER_CHANGES
    ),
    Reason.MODEL_NOT_FOUND: ErrorWords(
        N_("A model was looked up that is not offered, or not to this key"),
        N_("List the models with the same key: it names those that it may use."),
        _CALLER_CHANGES,
    ),
    Reason.ENDPOINT_NOT_OFFERED: ErrorWords(
        N_("The endpoint is not offered"),
        N_("Use chat completions: embeddings, completions and responses are not offered."),
        _CALLER_CHANGES,
    ),
    Reason.METHOD_NOT_ALLOWED: ErrorWords(
        N_("The address does not support this HTTP method"), N_("Chats are sent with POST."), _CALLER_CHANGES
    ),
    Reason.BODY_TIMEOUT: ErrorWords(
        N_("The request did not arrive in time"),
        N_("Check the client's connection, then send the request again."),
        N_("Many of them: look at the network and the proxy before the edges."),
    ),
    Reason.REQUEST_RESOLVED: ErrorWords(
        N_("The request was abandoned before its answer began"),
        N_("Send it again with another idempotency key."),
        N_("Many of them: a process stalled or was restarted. See the runbook for metering."),
    ),
    Reason.REQUEST_REPEATED: ErrorWords(
        N_("The request was sent before with the same idempotency key"),
        N_("The first request counts: the error names it. For another answer, use another idempotency key."),
        _CALLER_CHANGES,
    ),
    Reason.IDEMPOTENCY_KEY_REUSED: ErrorWords(
        N_("An idempotency key was used again for another request"),
        N_("Use a new idempotency key for each request."),
        _CALLER_CHANGES,
    ),
    Reason.BODY_TOO_LARGE: ErrorWords(
        N_("The request is too large"),
        N_("Send at most 16 MB: shorten the conversation or shrink its images."),
        _CALLER_CHANGES,
    ),
    Reason.ENCODING_NOT_SUPPORTED: ErrorWords(
        N_("The request is compressed"), N_("Send the body without compression."), _CALLER_CHANGES
    ),
    Reason.RATE_LIMITED: ErrorWords(
        N_("More requests or tokens in a minute than the key may use"),
        N_("Wait for the time in the retry-after header, spread the requests, or raise the key's limits."),
        _OWNER_CHANGES,
    ),
    Reason.TOO_MANY_AT_ONCE: ErrorWords(
        N_("More requests at once than the key may run"),
        N_("Wait until one has ended, or raise the key's limit of concurrent requests."),
        _OWNER_CHANGES,
    ),
    Reason.TOO_MANY_WRONG_KEYS: ErrorWords(
        N_("An address sent too many wrong keys"),
        N_("Correct the key in the program that calls, then wait a minute."),
        N_("Keys are being guessed, or a program keeps using a revoked key. The edges limit such an address."),
    ),
    Reason.CREDITS_HELD: ErrorWords(
        N_("The credit is held by running requests"),
        N_("Wait until one has ended, set a lower max_tokens, or add credit."),
        N_("The account has little credit left for what it runs at once: its owner can add some."),
    ),
    Reason.SPEND_LIMIT_EXCEEDED: ErrorWords(
        N_("The spend limit of the day or the month is reached"),
        N_("Wait until it starts anew, or raise the spend limit of the key or the account."),
        _OWNER_CHANGES,
    ),
    Reason.SPEND_LIMIT_SPENT: ErrorWords(
        N_("The spend limit in all is reached"), N_("Raise the spend limit of the key or the account."), _OWNER_CHANGES
    ),
    Reason.SATURATED: ErrorWords(
        N_("There is no capacity for another chat"),
        _RETRY,
        N_("The models of a class are full, or an edge is: Routes tell which. Add a model, a limit or an edge."),
    ),
    Reason.UPSTREAM_FAILED: ErrorWords(
        N_("No model of the class answered"),
        N_("Send the request again, or use another class until it is back."),
        N_("See which provider fails under Routes; the runbook is provider-down.md."),
    ),
    Reason.UPSTREAM_REFUSED: ErrorWords(
        N_("No model of the class accepts the request"),
        N_("Leave out what the message names, or use another class."),
        N_("A model lacks a feature that callers use: another model in the class may have it."),
    ),
    Reason.CONTENT_POLICY: ErrorWords(
        N_("The provider's content policy does not allow the request"),
        N_("Change what is asked. Another class may have another policy."),
        _CALLER_CHANGES,
    ),
    Reason.UNAVAILABLE: ErrorWords(
        N_("A part of the service was not available"),
        _RETRY,
        N_("See which process does not answer under Models; the runbooks say what to do."),
    ),
    Reason.MAINTENANCE: ErrorWords(
        N_("The service is in maintenance"), _RETRY, N_("End the maintenance when the work is done.")
    ),
    Reason.CALLER_NOT_ALLOWED: ErrorWords(
        N_("A program called what its certificate does not allow"), _TELL_US, _CERTIFICATES
    ),
    Reason.CALLER_NOT_GRANTED: ErrorWords(
        N_("A program called for an account that it was not granted"),
        N_("Grant the program the account, if it should have it."),
        N_("Grant the program the account, or end the program."),
    ),
    Reason.ACCESS_TOKEN_INVALID: ErrorWords(N_("A console's access token was not accepted"), _TELL_US, _CERTIFICATES),
    Reason.ROLE_MISSING: ErrorWords(
        N_("The user's role does not allow this"), N_("Ask an owner of the account for another role."), _OWNER_CHANGES
    ),
    Reason.STEP_UP_REQUIRED: ErrorWords(
        N_("The user has to confirm who they are"),
        N_("Confirm with a passkey or a code, then repeat it."),
        _CREDENTIALS,
    ),
    Reason.SIGN_IN_FAILED: ErrorWords(
        N_("A sign-in failed"), N_("Try again, or ask for a new sign-in link."), _CREDENTIALS
    ),
    Reason.SESSION_ENDED: ErrorWords(N_("The session has ended"), N_("Sign in again."), _CREDENTIALS),
    Reason.TOO_MANY_SIGN_INS: ErrorWords(
        N_("There were too many attempts to sign in"), N_("Wait a few minutes, then try again."), _CREDENTIALS
    ),
    Reason.INTERNAL: ErrorWords(
        N_("Legato failed"), _TELL_US, N_("A defect: look for the request ID in the logs, and report it.")
    ),
}


def error_words(reason: str) -> ErrorWords:
    """Returns the words of a reason in the language of the visit; general ones for a reason of a newer release."""
    if reason in Reason.__members__:
        return ErrorWords(*map(_, _WORDS[Reason(reason)]))
    newer = _("A process of a newer release gave this reason: update the console.")
    return ErrorWords(reason, _(_TELL_US), newer)
