"""A chat that comes in by HTTP: what all dialects share. Each says how its body is read and how it is answered."""

from collections.abc import Awaitable, Mapping
from typing import Final

from edge.access.principals import Principals
from edge.backends.auth import Principal
from edge.chat.edge_state import EdgeState
from edge.chat.incoming import INFERENCE, SMALL_BODY_BYTES, IncomingChat
from edge.wire.body_reader import announced_bytes, read_body
from edge.wire.responses import error_body
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import BODY, Headers, HttpScope, Receive, Send
from services.chassis.http.body_progress import TimedReceive
from services.chassis.load.fair_budget import BudgetShare

# Key of the request's state: further headers of the response to an error that the chat raises.
REFUSAL_HEADERS: Final = "refusal_headers"


class HttpChat(IncomingChat):
    span_attributes: Mapping[str, str] = {"http.request.method": "POST"}

    def __init__(self, edge: EdgeState, scope: HttpScope, receive: Receive, send: Send) -> None:
        super().__init__(scope["state"]["request_id"], scope)
        self._edge = edge
        self._receive = receive
        self._send = send
        self.announced_bytes = announced_bytes(scope)
        self.has_small_body = BODY in scope and len(scope[BODY]) <= SMALL_BODY_BYTES

    def identify(self, principals: Principals) -> Awaitable[Principal]:
        return principals.identify(self.scope, INFERENCE)

    @staticmethod
    def name_param(param: str | None) -> str | None:
        """Returns the name that a field of chat completions has in the dialect."""
        return param

    def read(self, memory: BudgetShare) -> Awaitable[bytes]:
        return read_body(self.scope, TimedReceive(self._receive), memory)

    def record_rates(self, rates: Headers) -> None:
        self.scope["state"][REFUSAL_HEADERS] = rates

    @staticmethod
    def render_error(error: LegatoError, request_id: str) -> tuple[bytes, Headers]:
        """Renders the body of a response to an error, and the headers of the dialect."""
        return error_body(error), []
