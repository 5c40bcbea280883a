"""The edge as one ASGI application."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from edge.api.chat import ChatEndpoint
from edge.api.usage import usage_page
from edge.api.usage_request import receipt
from edge.metrics import ChatMetrics
from edge.principal import Principal, Scope
from edge.wire.asgi import Headers, HttpScope, Receive, Send
from edge.wire.body_reader import ClientGone
from edge.wire.cors import Cors
from edge.wire.errors import error_body, error_headers
from edge.wire.request_ids import new_request_id
from edge.wire.responses import send_error, send_nothing
from services.chassis.errors import LegatoError, Reason, forget_origin, internal_error
from services.chassis.telemetry.log import Log

CHAT_PATH = "/v1/chat/completions"


class Edge:
    """Stands before FastAPI: gives every request its id, sends chats straight to their endpoint, and sees to it that
    whatever is raised leaves in the error shape."""

    def __init__(self, chat: ChatEndpoint, cors: Cors, log: Log) -> None:
        self._chat = chat
        self._metrics = chat.dependencies.metrics
        self._cors = cors
        self._log = log
        self._others = make_app(chat)

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = new_request_id()
        answer = Answer(send, [(b"x-request-id", request_id.encode()), *self._cors.headers(scope)])
        try:
            if scope["path"] == CHAT_PATH and scope["method"] == "POST":
                await self._chat(scope, receive, answer.send, request_id)
            else:
                await self._answer(scope, receive, answer.send)
        except ClientGone:
            pass
        except LegatoError as error:
            self._metrics.refused(error.reason)
            await send_error(answer.send, error)
        except Exception as error:
            self._log.failure("request.failed", error, request_id=request_id)
            forget_origin(error)
            self._metrics.refused(Reason.INTERNAL)
            if not answer.has_begun:
                await send_error(answer.send, internal_error())

    def refuse_at_once(self, scope: HttpScope) -> tuple[int, Headers, bytes] | None:
        """The answer to a chat for which there is no room, before a task is made for it: in a flood the price of a
        refusal decides how much is left for those who are served. None: it is to be looked at as usual."""
        if scope["path"] != CHAT_PATH or scope["method"] != "POST":
            return None
        refusal = self._chat.entrance.refusal(scope["headers"])
        if refusal is None:
            return None
        error, rates = refusal
        self._metrics.refused(error.reason)
        identity = (b"x-request-id", new_request_id().encode())
        headers = [*error_headers(error), *rates, identity, *self._cors.headers(scope)]
        return error.wire.http_status, headers, error_body(error)

    async def _answer(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["method"] == "OPTIONS":
            await send_nothing(send, self._cors.preflight(scope))
        elif scope["path"] != CHAT_PATH:
            await self._others(scope, receive, send)  # type: ignore[arg-type]
        else:
            await self._chat.entrance.identify(scope, None)
            self._metrics.refused(Reason.METHOD_NOT_ALLOWED)
            await send_error(send, _method_not_allowed(), [(b"allow", _allowed("POST").encode())])


class Answer:
    """The headers that every answer has are put to it."""

    __slots__ = ("_headers", "_send", "has_begun")

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = headers
        self.has_begun = False

    def send(self, message: dict[str, Any]) -> Awaitable[None]:
        if not self.has_begun:
            self.has_begun = True
            message["headers"] = [*message["headers"], *self._headers]
        return self._send(message)


def make_app(chat: ChatEndpoint) -> FastAPI:
    """Everything but the chats."""
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    metering, clock = chat.dependencies.metering, chat.dependencies.clock

    async def admit(request: Request, needed: "Scope.ValueType") -> Principal:
        return await chat.entrance.admit(request.scope, needed)  # type: ignore[arg-type]

    async def identify(request: Request) -> None:
        await chat.entrance.identify(request.scope, None)  # type: ignore[arg-type]

    @app.get("/v1/models")
    async def list_models(request: Request) -> Response:
        await admit(request, Scope.SCOPE_MODELS)
        return _json(chat.models.list_object())

    @app.get("/v1/models/{model_id}")
    async def get_model(request: Request, model_id: str) -> Response:
        await admit(request, Scope.SCOPE_MODELS)
        return _json(chat.models.model_object(model_id))

    @app.get("/v1/usage")
    async def get_usage(request: Request) -> Response:
        principal = await admit(request, Scope.SCOPE_USAGE)
        parameters = parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        return _json(await usage_page(metering, clock, principal, parameters))

    @app.get("/v1/usage/requests/{request_id}")
    async def get_request(request: Request, request_id: str) -> Response:
        principal = await admit(request, Scope.SCOPE_USAGE)
        return _json(await receipt(metering, principal, request_id))

    @app.post("/v1/embeddings")
    @app.post("/v1/completions")
    @app.post("/v1/responses")
    async def refuse(request: Request) -> Response:
        await identify(request)
        raise LegatoError(Reason.ENDPOINT_NOT_OFFERED, "This service offers chat completions, and not this endpoint.")

    _tell_errors(app, identify, chat.dependencies.metrics)
    return app


def _tell_errors(app: FastAPI, identify: Callable[[Request], Awaitable[None]], metrics: ChatMetrics) -> None:
    def told(error: LegatoError, headers: dict[str, str] | None = None) -> Response:
        metrics.refused(error.reason)
        return _error(error, headers or {})

    @app.exception_handler(LegatoError)
    async def tell(request: Request, error: LegatoError) -> Response:
        return told(error)

    @app.exception_handler(HTTPException)
    async def reshape(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            return await tell_method(request, (error.headers or {}).get("Allow", ""))
        return told(LegatoError(Reason.NOT_FOUND, "There is nothing at this address."))

    async def tell_method(request: Request, offered: str) -> Response:
        try:
            await identify(request)
        except LegatoError as error:
            return told(error)
        return told(_method_not_allowed(), {"allow": _allowed(offered)})

    @app.exception_handler(Exception)
    async def hide(request: Request, error: Exception) -> Response:
        return told(internal_error())


def _method_not_allowed() -> LegatoError:
    return LegatoError(Reason.METHOD_NOT_ALLOWED, "This endpoint does not take that method.")


def _allowed(offered: str) -> str:
    """The methods of an endpoint, with the one that browsers ask first."""
    return f"{offered}, OPTIONS"


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


def _error(error: LegatoError, further: dict[str, str]) -> Response:
    headers = {name.decode(): value.decode() for name, value in error_headers(error)} | further
    return Response(error_body(error), error.wire.http_status, headers, "application/json")
