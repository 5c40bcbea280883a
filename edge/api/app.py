"""The edge as one ASGI application: finds the route of a request, and renders, counts and logs every error.

Two kinds of error are rendered elsewhere, since no response can be begun for them: those in the middle of a stream
(`edge/chat/replies.py`), and the answer to bytes that are not HTTP (`edge/http/connection.py`).
"""

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

import msgspec

from edge.access.entrance import Entrance
from edge.api.chat import ChatEndpoint
from edge.api.models import Models
from edge.api.routes import ROUTES, Route, RouteTable
from edge.billing.metering import Metering
from edge.metrics import ChatMetrics
from edge.wire.asgi import Cors, Headers, HttpScope, Receive, Send, new_request_id
from edge.wire.body_reader import ClientGone
from edge.wire.responses import Response, error_body, error_headers, send_json, send_nothing
from services.chassis.errors import LegatoError, Reason, forget_origin, internal_error
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock

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

    def refuse_at_once(self, scope: HttpScope) -> tuple[int, Headers, bytes] | None:
        """Renders the refusal of a chat that exceeds the capacity, before a task is created for it: under overload,
        cheap refusals leave more CPU time for the chats that are served. Returns None if the chat is not refused."""
        found = self._routes.find(scope["path"])
        if found is None or not found[0].answers_itself or scope["method"] != found[0].method:
            return None
        refusal = self._entrance.refusal(scope["headers"])
        if refusal is None:
            return None
        error, rates = refusal
        request_id = new_request_id()
        status, headers, body = self._render(error, request_id)
        return status, [*headers, *rates, *self._common_headers(scope, request_id)], body

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
