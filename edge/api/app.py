"""The edge as one ASGI application: finds the route of a request, and renders, counts and logs every error.

Two kinds of error are rendered elsewhere, since no response can be begun for them: those in the middle of a stream
(`edge/chat/replies.py`), and the answer to bytes that are not HTTP (`services/chassis/http/connection.py`).
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw

from edge.access.entrance import Entrance
from edge.api.chat import ChatEndpoint, Models, create_chat_completion, get_model, list_models
from edge.api.usage import get_usage, get_usage_request
from edge.backends.auth import Scope
from edge.billing.metering import Metering
from edge.metrics import ChatMetrics
from edge.wire.requests import ClientGone, Cors, new_request_id
from edge.wire.responses import JSON, Response, error_body, error_headers, send_json, send_nothing
from services.chassis.errors import LegatoError, Reason, forget_origin, internal_error
from services.chassis.http.answer import Answer
from services.chassis.http.asgi import Headers, HttpScope, Receive, Send
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

# The table of all public endpoints, and the lookup of a request's route.
#
# A handler is a function that takes what it uses as keyword parameters: parts of the edge (`models`, `metering`,
# `clock`, `chat`), parts of the request (`principal`, `query_string`) and the parameters of its path. It returns the
# JSON of the response.

FILE: Final = Path(__file__).with_name("openapi.json")


@cache
def _document() -> Raw:
    return Raw(FILE.read_bytes())


async def get_openapi() -> Raw:
    return _document()


# The response as JSON; None if the handler sends it itself.
Handler = Callable[..., Awaitable[Any]]
_PARAMETER = re.compile(r"\{(\w+)\}")


async def refuse_endpoint() -> None:
    """Refuses endpoints of OpenAI's API that clients may call and that are not offered."""
    raise LegatoError(Reason.ENDPOINT_NOT_OFFERED, "This endpoint is not supported: use chat completions.")


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    method: str
    path: str
    # The scope that the key needs; None: any key.
    scope: "Scope.ValueType | None"
    handler: Handler
    is_offered: bool = True
    # Needs no key and counts towards no rate limit.
    is_public: bool = False
    # The handler admits the request and sends the response itself: it gets ASGI's scope, receive and send.
    answers_itself: bool = False
    # The names of the handler's parameters.
    takes: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "takes", frozenset(inspect.signature(self.handler).parameters))

    @property
    def path_parameters(self) -> list[str]:
        return _PARAMETER.findall(self.path)

    @property
    def allow(self) -> bytes:
        """The value of the Allow header: the method, and OPTIONS for browsers' preflight requests."""
        return f"{self.method}, OPTIONS".encode()


ROUTES: Final = (
    Route("POST", "/v1/chat/completions", Scope.SCOPE_INFERENCE, create_chat_completion, answers_itself=True),
    Route("GET", "/v1/models", Scope.SCOPE_MODELS, list_models),
    Route("GET", "/v1/models/{model_id}", Scope.SCOPE_MODELS, get_model),
    Route("GET", "/v1/usage", Scope.SCOPE_USAGE, get_usage),
    Route("GET", "/v1/usage/requests/{request_id}", Scope.SCOPE_USAGE, get_usage_request),
    Route("GET", "/openapi.json", None, get_openapi, is_public=True),
    Route("POST", "/v1/embeddings", None, refuse_endpoint, is_offered=False),
    Route("POST", "/v1/completions", None, refuse_endpoint, is_offered=False),
    Route("POST", "/v1/responses", None, refuse_endpoint, is_offered=False),
)


# Clients encode a slash in a model's id, which is unknown here like any other.
MODELS_PATH: Final = b"/v1/models/"


class RouteTable:
    """Finds the route of a path. Each path has one route, and so one method."""

    def __init__(self, routes: Iterable[Route] = ROUTES) -> None:
        self._by_path: dict[str, Route] = {}
        self._by_pattern: list[tuple[re.Pattern[str], Route]] = []
        for route in routes:
            if route.path_parameters:
                self._by_pattern.append((re.compile(_PARAMETER.sub(r"(?P<\1>[^/]+)", route.path)), route))
            else:
                self._by_path[route.path] = route

    def find(self, path: str) -> tuple[Route, Mapping[str, str]] | None:
        """Returns the route and the values of its path parameters; None if there is no such route."""
        if route := self._by_path.get(path):
            return route, {}
        for pattern, route in self._by_pattern:
            if match := pattern.fullmatch(path):
                return route, match.groupdict()
        return None


# Parameters that a handler may take from the request, besides those of its path.
_OF_REQUEST = frozenset({"principal", "query_string"})


class Edge:
    def __init__(
        self,
        *,
        entrance: Entrance,
        chat: ChatEndpoint,
        models: Models,
        metering: Metering,
        cors: Cors,
        clock: Clock,
        log: Log,
        metrics: ChatMetrics,
    ) -> None:
        self._entrance = entrance
        self._cors = cors
        self._log = log
        self._metrics = metrics
        self._routes = RouteTable()
        self._parts = bind_parts({"chat": chat, "models": models, "metering": metering, "clock": clock})

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request_id = new_request_id()
        response = Response(send, self._common_headers(scope, request_id))
        try:
            await self._dispatch(scope, receive, response, request_id)
        except ClientGone:
            pass
        except Exception as error:
            await self._refuse(response, self._public_error(error, request_id), request_id)
            forget_origin(error)

    def _dispatch(self, scope: HttpScope, receive: Receive, response: Response, request_id: str) -> Awaitable[None]:
        """Starts to answer the request. It is not a coroutine, which saves one frame for each piece of a stream."""
        if scope["method"] == "OPTIONS":
            return send_nothing(response.send, self._cors.preflight(scope))
        found = self._routes.find(scope["path"])
        if found is None:
            raise LegatoError(Reason.NOT_FOUND, "There is no endpoint at this path.")
        route, path_values = found
        if scope["method"] != route.method:
            return self._refuse_method(scope, response, route)
        if route.answers_itself:
            return route.handler(
                **self._parts[route],
                needed_scope=route.scope,
                scope=scope,
                receive=receive,
                response=response,
                request_id=request_id,
            )
        return self._answer(scope, response, route, path_values)

    async def _answer(self, scope: HttpScope, response: Response, route: Route, path_values: Mapping[str, str]) -> None:
        principal = None
        if route.is_offered and not route.is_public:
            principal = await self._entrance.admit(scope, route.scope)
        elif not route.is_public:
            await self._entrance.identify(scope, route.scope)
        known = {"principal": principal, "query_string": scope["query_string"]}
        used = {name: known[name] for name in route.takes & known.keys()}
        answer = await route.handler(**self._parts[route], **used, **path_values)
        await send_json(response.send, 200, msgspec.json.encode(answer), [])

    async def _refuse_method(self, scope: HttpScope, response: Response, route: Route) -> None:
        if not route.is_public:
            await self._entrance.identify(scope, None)
        response.put_headers([(b"allow", route.allow)])
        raise LegatoError(Reason.METHOD_NOT_ALLOWED, "This endpoint does not support this method.")

    def refuse_at_once(self, scope: HttpScope) -> Answer | None:
        """Renders the refusal of a chat that exceeds the capacity, before a task is created for it: under overload,
        cheap refusals leave more CPU time for the chats that are served. Returns None if the chat is not refused."""
        if not self._entrance.is_saturated:
            return None
        found = self._routes.find(scope["path"])
        if found is None or not found[0].answers_itself or scope["method"] != found[0].method:
            return None
        refusal = self._entrance.refusal(scope["headers"])
        if refusal is None:
            return None
        error, rates = refusal
        request_id = new_request_id()
        status, headers, body = self._render(error, request_id)
        return Answer(status, [JSON, *headers, *rates, *self._common_headers(scope, request_id)], body)

    def _public_error(self, error: Exception, request_id: str) -> LegatoError:
        if isinstance(error, LegatoError):
            return error
        self._log.failure("request.failed", error, request_id=request_id)
        return internal_error()

    async def _refuse(self, response: Response, error: LegatoError, request_id: str) -> None:
        status, headers, body = self._render(error, request_id)
        if not response.has_begun:
            await send_json(response.send, status, body, headers)

    def _render(self, error: LegatoError, request_id: str) -> tuple[int, Headers, bytes]:
        """Counts and logs the error, and gives its status, headers and body."""
        status = error.wire.http_status
        self._metrics.refused(error.reason)
        self._log.debug("request.refused", request_id=request_id, reason=error.reason, http_status=status)
        return status, error_headers(error), error_body(error)

    def _common_headers(self, scope: HttpScope, request_id: str) -> Headers:
        return [(b"x-request-id", request_id.encode()), *self._cors.headers(scope)]


def bind_parts(parts: Mapping[str, Any], routes: Iterable[Route] = ROUTES) -> dict[Route, dict[str, Any]]:
    """Returns the parts of the edge that each handler takes. All other parameters come from the request or its path."""
    bound = {}
    for route in routes:
        bound[route] = {name: parts[name] for name in route.takes & parts.keys()}
        if not route.answers_itself:
            unknown = route.takes - parts.keys() - _OF_REQUEST - set(route.path_parameters)
            if unknown:
                raise TypeError(f"{route.method} {route.path}: unknown parameters: {', '.join(sorted(unknown))}")
    return bound
