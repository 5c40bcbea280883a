"""The refusals of the models that one chat tried or passed over, and the error that its client gets."""

from dataclasses import dataclass

from services.chassis.errors import LegatoError, Reason
from services.router.providers.base import CannotDo, Failure, ProviderError
from services.router.routing.target import Target
from services.router.schema.parameters import RARELY_TAKEN, Parameters


class NotAccepted(LegatoError):
    """The provider understood the request and refused it."""

    def __init__(self) -> None:
        super().__init__(Reason.UPSTREAM_REFUSED, "The model does not accept this request as it is.")


@dataclass(slots=True)
class Refusals:
    """The refusals of all models that were tried or skipped."""

    no_room: LegatoError | None = None
    cannot: LegatoError | None = None
    saturated: LegatoError | None = None
    # Set if a suitable model failed, or was skipped because the retry budget is spent.
    is_for_now: bool = False

    def add_saturated(self, error: LegatoError) -> None:
        """Keeps the error with the shortest retry-after."""
        if self.saturated is None or (error.retry_after_s or 0) < (self.saturated.retry_after_s or 0):
            self.saturated = error

    def to_raise(self) -> LegatoError:
        """Returns the error for the client: a retryable one if any model was saturated or failed."""
        failed = LegatoError(Reason.UPSTREAM_FAILED, "The model is not available right now. Please retry.")
        return self.saturated or (failed if self.is_for_now else self.no_room or self.cannot or failed)


def too_long_for(target: Target) -> LegatoError:
    return LegatoError(
        Reason.CONTEXT_EXCEEDED,
        f"The prompt, including tool definitions, is too long: this model's maximum context length is"
        f" {target.context_tokens} tokens. Please shorten the messages.",
        param="messages",
    )


def dropped_after(error: ProviderError, parameters: Parameters) -> list[str]:
    """Returns the parameters to leave out after a refusal: those that its message mentions, or else those that few
    models take. A client does not know the model of a class, nor what it takes."""
    if error.failure is not Failure.REFUSED or isinstance(error, CannotDo):
        return []
    return sorted(error.mentions & parameters.fields.keys() or RARELY_TAKEN & parameters.fields.keys())
