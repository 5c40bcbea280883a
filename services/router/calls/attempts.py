"""The models that one chat tried, for its log line and its reports."""

from msgspec import Struct, field

from legato_protos.type.v1.model_call_pb2 import ModelCall
from services.router.routes.target import Target


class Attempts(Struct):
    """Is kept by the chat, through all its searches for a model."""

    count: int = 0
    # The last that was called, or the one that answered.
    target: Target | None = None
    http_status: int | None = None
    # Those of them that do not count, such as one that repeated a model with a lower max_tokens.
    refits: int = 0
    first_asked_at_s: float | None = None
    # Of the routes that list these models.
    routes_version: str = ""
    # What was called and did not answer, and yet costs.
    other_calls: list[ModelCall] = field(default_factory=list)

    def begin_search(self, routes_version: str) -> None:
        self.routes_version = routes_version

    def repeat(self) -> None:
        """Is called before the same model is called again with another request, which does not count."""
        self.refits += 1

    def call(self, target: Target, asked_at_s: float) -> None:
        self.target = target
        self.count += 1
        if self.first_asked_at_s is None:
            self.first_asked_at_s = asked_at_s

    def take_back(self) -> None:
        """Forgets the last call, of which no request was sent."""
        self.count -= 1

    def fail(self, http_status: int | None) -> None:
        self.http_status = http_status

    def answer(self, target: Target) -> None:
        """Records the model that answers, if another was called after it."""
        self.target = target

    def discount(self) -> None:
        """Lets none of the calls so far count."""
        self.refits = self.count
