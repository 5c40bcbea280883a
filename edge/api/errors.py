"""Renders the error table: every error of an endpoint, of a path or method that does not exist, and of ours.

Errors in the middle of a stream are rendered by the reply of their dialect, and the answer to bytes that are not HTTP
by the HTTP server, since no response can be begun for them.
"""

from collections.abc import Awaitable
from http import HTTPStatus
from typing import Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edge.api.dialects import CHATS
from edge.chat.edge_state import EdgeState
from edge.http.http_chat import REFUSAL_HEADERS
from edge.messages.errors import is_for_messages, render_error
from edge.wire.body_reader import ClientGone
from edge.wire.responses import error_body, error_headers
from legato_protos.type.v1.chat_api_pb2 import CHAT_API_UNSPECIFIED
from services.chassis.errors import LegatoError, Reason, forget_origin, internal_error
from services.chassis.http.asgi import Headers
from services.chassis.sentence import Sentence

# Every path below it needs a key, whatever the method.
_KEYED_PATHS: Final = "/v1/"


async def answer_error(request: Request, error: Exception) -> Response:
    """Handles every exception that an endpoint, a dependency or the framework raises."""
    if isinstance(error, ClientGone):
        # Written to no one.
        return Response(status_code=HTTPStatus.SERVICE_UNAVAILABLE)
    edge: EdgeState = request.app.state.edge
    headers: Headers = request.scope["state"].get(REFUSAL_HEADERS, [])
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        refusal = await _refuse_method(request, edge)
        if refusal.reason is Reason.METHOD_NOT_ALLOWED:
            headers = [(b"allow", f"{(error.headers or {})['Allow']}, OPTIONS".encode())]
    else:
        refusal = _to_refusal(request, edge, error)
    forget_origin(error)
    request_id: str = request.state.request_id
    chat = CHATS.get(request.scope["path"])
    edge.record_refusal(refusal, request_id, CHAT_API_UNSPECIFIED if chat is None else chat.api)
    body, of_dialect = error_body(refusal), Headers()
    if is_for_messages(request.scope):
        body, of_dialect = render_error(refusal, request_id)
    response = Response(body, refusal.wire.http_status, media_type="application/json")
    response.raw_headers += [*error_headers(refusal), *headers, *of_dialect]
    return response


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


def _to_refusal(request: Request, edge: EdgeState, error: Exception) -> LegatoError:
    match error:
        case LegatoError():
            if (chat := CHATS.get(request.scope["path"])) is not None:
                error.param = chat.name_param(error.param)
            return error
        case RequestValidationError():
            return _invalid_parameter(error)
        case HTTPException(status_code=404):
            return LegatoError(Reason.NOT_FOUND, Sentence("endpoint_unknown"))
    edge.log.failure("request.failed", error, request_id=request.state.request_id)
    return internal_error()


async def _refuse_method(request: Request, edge: EdgeState) -> LegatoError:
    """Returns the error; where endpoints need a key, that is asked for first."""
    if request.scope["path"].startswith(_KEYED_PATHS):
        try:
            await edge.principals.identify(request.scope, None)
        except LegatoError as refusal:
            return refusal
    return LegatoError(Reason.METHOD_NOT_ALLOWED, Sentence("method_not_allowed"))


def _invalid_parameter(error: RequestValidationError) -> LegatoError:
    """Names the first parameter that is wrong. The framework's messages say what was expected, not what was sent."""
    first = error.errors()[0]
    if first["type"] == "extra_forbidden":
        return LegatoError(Reason.REQUEST_INVALID, Sentence("parameter_unknown"))
    name = str(first["loc"][1])
    return LegatoError(
        Reason.REQUEST_INVALID, Sentence("parameter_invalid", name=name, expected=first["msg"]), param=name
    )
