"""The table of all public endpoints, and the lookup of a request's route.

A handler is a function that takes what it uses as keyword parameters: parts of the edge (`models`, `metering`, `clock`,
`chat`), parts of the request (`principal`, `query_string`) and the parameters of its path. It returns the JSON of the
response.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from msgspec import Raw

from edge.api.chat import create_chat_completion
from edge.api.models import get_model, list_models
from edge.api.usage import get_usage, get_usage_request
from edge.backends.auth import Scope
from services.chassis.errors import LegatoError, Reason

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
