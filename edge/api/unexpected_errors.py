"""Answers requests that fail unexpectedly."""

from collections.abc import Awaitable

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edge.api.errors import answer_error


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
