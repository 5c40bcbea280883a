"""Around every request: its id, and an answer if something unexpected fails."""

from collections.abc import Awaitable

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edge.api.errors import answer_error
from edge.wire.requests import new_request_id


class RequestIdMiddleware:
    """Gives each request an id, as `request.state.request_id` and in the header of its response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = new_request_id()
        scope.setdefault("state", {})["request_id"] = request_id

        def send_with_id(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            return send(message)

        await self._app(scope, receive, send_with_id)


class UnexpectedErrorMiddleware:
    """Answers what no other handler does. Starlette's own stands outside of all other middleware, so that its answer
    would have neither the request id nor the CORS headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        def send_noting(message: Message) -> Awaitable[None]:
            nonlocal has_begun
            has_begun = True
            return send(message)

        try:
            await self._app(scope, receive, send_noting)
        except Exception as error:
            response = await answer_error(Request(scope), error)
            if not has_begun:
                await response(scope, receive, send)
