"""Collects why no model of a class answered a chat."""

from services.chassis.errors import LegatoError, Reason
from services.router.routing.routes import Target


class NotAccepted(LegatoError):
    """The provider understood the request and refused it."""

    def __init__(self) -> None:
        super().__init__(Reason.UPSTREAM_REFUSED, "The model does not accept this request as it is.")


class Refusals:
    """The refusals of all models that were tried or skipped."""

    def __init__(self) -> None:
        self.no_room: LegatoError | None = None
        self.cannot: LegatoError | None = None
        # Set if a suitable model failed, or was skipped because the retry budget is spent.
        self.is_for_now = False
        self._saturated: LegatoError | None = None

    @property
    def are_for_want_of_room(self) -> bool:
        return self._saturated is not None

    def add_saturated(self, error: LegatoError) -> None:
        """Keeps the error with the shortest retry-after."""
        if self._saturated is None or (error.retry_after_s or 0) < (self._saturated.retry_after_s or 0):
            self._saturated = error

    def to_raise(self) -> LegatoError:
        """Returns the error for the client: a retryable one if any model was saturated or failed."""
        failed = LegatoError(Reason.UPSTREAM_FAILED, "The model is not available right now. Please retry.")
        return self._saturated or (failed if self.is_for_now else self.no_room or self.cannot or failed)


def too_long_for(target: Target) -> LegatoError:
    return LegatoError(
        Reason.CONTEXT_EXCEEDED,
        f"The prompt, including tool definitions, is too long: this model's maximum context length is"
        f" {target.context_tokens} tokens. Please shorten the messages.",
        param="messages",
    )
