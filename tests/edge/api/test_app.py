"""The application: what is raised becomes one response, one count and one line in the log."""

import io
import json
from typing import Any, cast

import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from edge.api.app import EdgeApp
from edge.api.state import EdgeState
from edge.metrics import ChatMetrics
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from tests.edge.metering_harness import ANN
from tests.support.fakes import FakeClock


class OpenEntrance:
    """Lets everybody in."""

    async def identify(self, scope: Any, needed: Any) -> Any:
        return ANN


class NoLimits:
    async def admit(self, principal: Any) -> None: ...


class FailingModels:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def usable(self, principal: Any) -> Any:
        raise self._error


class Door:
    """An edge whose list of models fails, and what it says then."""

    def __init__(self, error: Exception) -> None:
        self._lines = io.StringIO()
        self._registry = Registry()
        self.messages: list[Any] = []
        self._app = EdgeApp(
            EdgeState(
                entrance=cast(Any, OpenEntrance()),
                chat=cast(Any, None),
                models=cast(Any, FailingModels(error)),
                metering=cast(Any, NoLimits()),
                clock=FakeClock(),
                log=Log("edge", self._lines, debug=True),
                metrics=ChatMetrics(self._registry),
            )
        )

    async def ask(self, method: str, path: str, **headers: str) -> None:
        async def send(message: Any) -> None:
            self.messages.append(message)

        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": given, "query_string": b"", "state": {}}
        await self._app(scope, cast(Any, None), send)

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
        ("PUT", "/v1/chat/completions", 405, Reason.METHOD_NOT_ALLOWED),
        ("PUT", "/docs/assets/swagger-ui.css", 405, Reason.METHOD_NOT_ALLOWED),
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
    await door.ask("GET", "/v1/models", origin="https://app.example")
    start, body = door.messages
    assert start["status"] == 500
    assert b"somebody" not in body["body"]
    assert door.refusals == {Reason.INTERNAL: 1}
    assert [line["event"] for line in door.lines] == ["request.failed", "request.refused"]
    assert {b"x-request-id", b"access-control-allow-origin"} <= {name for name, _ in start["headers"]}


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/v1",
        "/v1/models/",
        "//v1/models",
        "/V1/models",
        "/v1/usage/requests",
        "/redoc",
    ],
)
async def test_other_paths_have_no_endpoint(path: str) -> None:
    door = Door(ValueError())
    await door.ask("GET", path)
    assert door.messages[0]["status"] == 404
    assert door.refusals == {Reason.NOT_FOUND: 1}


def test_every_endpoint_that_is_offered_names_a_scope_or_is_public() -> None:
    document = EdgeApp(cast(Any, None)).openapi()
    for path, operations in document["paths"].items():
        for operation in operations.values():
            scopes = [scopes for needed in operation.get("security", []) for scopes in needed.values()]
            assert operation["tags"] in (["Not offered"], ["Description"]) or (all(scopes) and scopes), path


def test_no_path_has_two_endpoints_for_a_method() -> None:
    routes = [each.original_route for each in iter_route_contexts(EdgeApp(cast(Any, None)).routes)]
    methods = [
        (route.path, method) for route in routes if isinstance(route, APIRoute) for method in route.methods or ()
    ]
    assert len(set(methods)) == len(methods)
