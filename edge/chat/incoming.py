"""A chat as it comes in, whatever transport brings it: what its admission needs, its body, and the way to answer."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from typing import ClassVar, Final

from edge.access.principals import Principals
from edge.backends.auth import Principal, Scope
from edge.billing.hold import ChatHold
from edge.chat.reply import Reply
from edge.wire.chat_request import ChatBody
from legato_protos.type.v1.chat_api_pb2 import ChatApi
from services.chassis.http.asgi import WHEN_GONE, Headers, HttpScope, WhenGone
from services.chassis.load.fair_budget import BudgetShare

# Bound once, since looking it up in its enumeration takes longer than all else that is done with it.
INFERENCE: Final = Scope.SCOPE_INFERENCE

# A body of this size that has arrived costs no more to check than to refuse.
SMALL_BODY_BYTES: Final = 16 * 1024


class IncomingChat(ABC):
    api: ClassVar[ChatApi.ValueType]
    # What a span says of the transport.
    span_attributes: Mapping[str, str]

    def __init__(self, request_id: str, scope: HttpScope) -> None:
        """Takes the headers and the client's address as ASGI has them, whatever the transport."""
        self.request_id = request_id
        self.scope = scope
        # The length of the body, if that is known before it is read.
        self.announced_bytes: int | None = None
        # The body has arrived, and has at most SMALL_BODY_BYTES.
        self.has_small_body = False

    @abstractmethod
    def identify(self, principals: Principals) -> Awaitable[Principal]:
        """Returns whom the chat is for, if that one may chat."""

    async def arrive(self, principal: Principal, memory: BudgetShare) -> None:  # noqa: B027 HTTP needs none of it.
        """Waits for what must have arrived before the chat is charged to its rate limits, and holds it in `memory`.
        After this, `announced_bytes` and `has_small_body` are final."""

    @abstractmethod
    def read(self, memory: BudgetShare) -> Awaitable[bytes]:
        """Returns the body as JSON. What has arrived of it is held in `memory`, which the caller releases."""

    @property
    def when_gone(self) -> WhenGone | None:
        """Registers a callback for a disconnect; None: the client has disconnected."""
        return self.scope.get(WHEN_GONE)

    @abstractmethod
    def open_reply(self, body: ChatBody, hold: ChatHold) -> Reply:
        """Opens the answer, and adds to the decoded body what a chat completion has no place for."""

    @abstractmethod
    def record_rates(self, rates: Headers) -> None:
        """Takes the rate limits to tell with the error that the chat raises."""
