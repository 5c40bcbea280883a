"""The edge's front door: what is raised becomes one response, one count and one line in the log."""

import inspect
import io
import json
from typing import Any, cast

import pytest

from edge.api.app import ROUTES, Edge, Route, RouteTable, bind_parts
from edge.backends.auth import Scope
from edge.metrics import ChatMetrics
from edge.wire.requests import Cors
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from tests.support.fakes import FakeClock


class OpenEntrance:
    """Lets everybody in."""

    async def admit(self, scope: Any, needed: Any) -> None: ...

    async def identify(self, scope: Any, needed: Any) -> None: ...


class FailingModels:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def list_object(self, principal: Any) -> Any:
        raise self._error


class Door:
    """An edge whose list of models fails, and what it says then."""

    def __init__(self, error: Exception) -> None:
        self._lines = io.StringIO()
        self._registry = Registry()
        self.messages: list[dict[str, Any]] = []
        self._edge = Edge(
            entrance=cast(Any, OpenEntrance()),
            chat=cast(Any, None),
            models=cast(Any, FailingModels(error)),
            metering=cast(Any, None),
            cors=Cors(),
            clock=FakeClock(),
            log=Log("edge", self._lines, debug=True),
            metrics=ChatMetrics(self._registry),
        )

    async def ask(self, method: str, path: str) -> None:
        async def send(message: dict[str, Any]) -> None:
            self.messages.append(message)

        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
        await self._edge(scope, cast(Any, None), send)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines.getvalue().splitlines()]

    @property
    def refusals(self) -> dict[Reason, float]:
        """Counted, by reason."""
        counted = {reason: self._registry.value("legato_refusals_total", {"reason": reason}) for reason in Reason}
        return {reason: count for reason, count in counted.items() if count}


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/v1/models", 400, Reason.MODEL_UNKNOWN),
        ("PUT", "/v1/models", 405, Reason.METHOD_NOT_ALLOWED),
        ("GET", "/nowhere", 404, Reason.NOT_FOUND),
        ("POST", "/v1/embeddings", 404, Reason.ENDPOINT_NOT_OFFERED),
    ],
)
async def test_a_refusal_is_sent_counted_and_logged_once(method: str, path: str, status: int, reason: Reason) -> None:
    door = Door(LegatoError(Reason.MODEL_UNKNOWN, "There is no such model."))
    await door.ask(method, path)
    start, body = door.messages
    assert start["status"] == status
    assert json.loads(body["body"])["error"]["message"]
    assert door.refusals == {reason: 1}
    [line] = door.lines
    assert (line["event"], line["reason"], line["http_status"]) == ("request.refused", reason, status)
    assert (b"x-request-id", line["request_id"].encode()) in start["headers"]


async def test_a_mistake_of_ours_is_counted_once_and_its_text_is_not_sent() -> None:
    door = Door(ValueError("what somebody said"))
    await door.ask("GET", "/v1/models")
    start, body = door.messages
    assert start["status"] == 500
    assert b"somebody" not in body["body"]
    assert door.refusals == {Reason.INTERNAL: 1}
    assert [line["event"] for line in door.lines] == ["request.failed", "request.refused"]


PARTS = ("chat", "clock", "metering", "models")


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_is_found_by_its_path(route: Route) -> None:
    values = dict.fromkeys(route.path_parameters, "some thing")
    assert RouteTable().find(route.path.format(**values)) == (route, values)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/models/",
        "/v1/models/a/b",
        "/v1/models\n",
        "//v1/models",
        "/V1/models",
        "/v1/usage/requests",
    ],
)
def test_other_paths_have_no_route(path: str) -> None:
    assert RouteTable().find(path) is None


def test_no_path_stands_in_the_table_twice() -> None:
    paths = [route.path for route in ROUTES]
    assert len(set(paths)) == len(paths)


def test_every_endpoint_that_is_offered_names_a_scope_or_is_public() -> None:
    assert [route.path for route in ROUTES if route.is_offered and not route.is_public and route.scope is None] == []


def test_handlers_take_only_what_can_be_given_to_them() -> None:
    bound = bind_parts(dict.fromkeys(PARTS))
    assert {name for parts in bound.values() for name in parts} == set(PARTS)


def test_a_handler_that_names_something_unknown_is_refused_at_the_start() -> None:
    async def lost(*, weather: str) -> None: ...

    route = Route("GET", "/v1/weather", Scope.SCOPE_MODELS, lost)
    with pytest.raises(TypeError, match="GET /v1/weather: unknown parameters: weather"):
        bind_parts(dict.fromkeys(PARTS), [route])


def test_handlers_name_all_they_take() -> None:
    for route in ROUTES:
        kinds = {parameter.kind for parameter in inspect.signature(route.handler).parameters.values()}
        assert kinds <= {inspect.Parameter.KEYWORD_ONLY}
