"""Why a chat is not answered by any model of its class."""

from services.chassis.errors import LegatoError, Reason
from services.router.routing.routes import Target


class NotAccepted(LegatoError):
    """The provider understood the request, and refused it."""

    def __init__(self) -> None:
        super().__init__(Reason.UPSTREAM_REFUSED, "The model does not accept this request as it is.")


class Refusals:
    """Those of the models that were asked, or passed over."""

    def __init__(self) -> None:
        self.no_room: LegatoError | None = None
        self.cannot: LegatoError | None = None
        # Whether one that may have taken it failed, or was left alone because too many do.
        self.is_for_now = False
        self._saturated: LegatoError | None = None

    @property
    def are_for_want_of_room(self) -> bool:
        return self._saturated is not None

    def add_saturated(self, error: LegatoError) -> None:
        """Of several, the one that expects room soonest."""
        if self._saturated is None or (error.retry_after_s or 0) < (self._saturated.retry_after_s or 0):
            self._saturated = error

    def to_raise(self) -> LegatoError:
        """Where one of them had no time, or failed, coming back later helps, whatever the others said."""
        failed = LegatoError(Reason.UPSTREAM_FAILED, "The model is not available right now. Please retry.")
        return self._saturated or (failed if self.is_for_now else self.no_room or self.cannot or failed)


def too_long_for(target: Target) -> LegatoError:
    return LegatoError(
        Reason.CONTEXT_EXCEEDED,
        f"The prompt, tool definitions included, is too long: this model's maximum context length is"
        f" {target.context_tokens} tokens. Please shorten the messages.",
        param="messages",
    )
