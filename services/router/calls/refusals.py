"""The refusals of the models that one chat tried or passed over, and the error that its client gets."""

from typing import Final

from msgspec import Struct

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.router.providers.base import CannotDo, Failure, ProviderError
from services.router.routes.target import Target
from services.router.schema.parameters import RARELY_TAKEN, STEERING, Parameters

# Fields of every request, beside its parameters.
_FIELDS: Final = frozenset({"messages", "tools", "tool_choice"})


class NotAccepted(LegatoError):
    """The models understood the request and refused it, for the cause or the field `param` if they named one."""

    def __init__(self, param: str | None = None, cause: Sentence | None = None) -> None:
        if cause is None:
            cause = Sentence("request_not_accepted") if param is None else Sentence("field_not_accepted", field=param)
        super().__init__(Reason.UPSTREAM_REFUSED, cause, param=param)


class Refusals(Struct):
    """The refusals of all models that were tried or skipped."""

    no_room: LegatoError | None = None
    cannot: LegatoError | None = None
    refused: NotAccepted | None = None
    saturated: LegatoError | None = None
    # A suitable model failed, or was skipped because the retry budget is spent.
    is_for_now: bool = False

    def add_no_room(self, error: LegatoError) -> None:
        self.no_room = error

    def add_for_now(self) -> None:
        self.is_for_now = True

    def add_failure(self, error: ProviderError, target: Target, parameters: Parameters) -> None:
        """Keeps what the client would get if no model answers. A busy model's refusal is added by itself: only the
        model's saturation knows when it may be asked again."""
        if isinstance(error, CannotDo):
            self.cannot = LegatoError(Reason.REQUEST_INVALID, error.sentence, param=error.param)
        elif error.failure is Failure.REFUSED:
            self.refused = not_accepted(error, parameters)
        elif error.failure is Failure.PROVIDER:
            self.is_for_now = True
        elif error.failure is Failure.CONTEXT:
            self.no_room = too_long_for(target.context_tokens)

    def add_saturated(self, error: LegatoError) -> None:
        """Keeps the error with the shortest retry-after."""
        if self.saturated is None or (error.retry_after_s or 0) < (self.saturated.retry_after_s or 0):
            self.saturated = error

    def to_raise(self) -> LegatoError:
        """Returns the error for the client: a retryable one if any model was saturated or failed."""
        failed = LegatoError(Reason.UPSTREAM_FAILED, Sentence("model_unavailable"))
        return self.saturated or (failed if self.is_for_now else self.no_room or self.refused or self.cannot or failed)


def too_long_for(context_tokens: int) -> LegatoError:
    return LegatoError(
        Reason.CONTEXT_EXCEEDED,
        Sentence("prompt_too_long", most=context_tokens),
        param="messages",
    )


def not_accepted(error: ProviderError, parameters: Parameters) -> NotAccepted:
    """Returns the error for a client whose request no model accepts. It names a known cause or a field of the request
    at most: the provider's message may quote the conversation."""
    if error.cause is not None:
        return NotAccepted(error.cause.param, error.cause.sentence)
    named = ({error.param} | error.mentions) & (_FIELDS | parameters.fields.keys())
    return NotAccepted(error.param if error.param in named else min(named, default=None))


def against_policy() -> LegatoError:
    return LegatoError(Reason.CONTENT_POLICY, Sentence("content_policy"))


def dropped_after(error: ProviderError, parameters: Parameters) -> list[str]:
    """Returns the parameters to leave out after a refusal: those that its message mentions, or else, if it names no
    other field and no known cause, those that few models take. A client does not know the model of a class, nor what it
    takes."""
    if error.failure is not Failure.REFUSED or isinstance(error, CannotDo):
        return []
    if error.param and error.param not in STEERING:
        return []
    mentioned = error.mentions & parameters.fields.keys()
    return sorted(mentioned or (RARELY_TAKEN & parameters.fields.keys() if error.cause is None else ()))
