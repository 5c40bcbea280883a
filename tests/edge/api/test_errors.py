"""Errors of every kind become one response, one count and one line in the log."""

from typing import Any

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.edge.api_harness import ApiHarness


class FailingModels:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def usable(self, principal: Any) -> Any:
        raise self._error


def failing(error: Exception) -> ApiHarness:
    """An edge whose list of models fails."""
    return ApiHarness(models=FailingModels(error))


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
    edge = failing(LegatoError(Reason.MODEL_UNKNOWN, Sentence.verbatim("There is no such model.")))
    response = await edge.ask(method, path)
    assert response.status == status
    assert response.body["error"]["message"]
    assert edge.refusals == {reason: 1}
    [line] = edge.lines
    assert (line["event"], line["reason"], line["http_status"]) == ("request.refused", reason, status)
    assert (b"x-request-id", line["request_id"].encode()) in response.headers


async def test_a_mistake_of_ours_is_counted_once_and_its_text_is_not_sent() -> None:
    edge = failing(ValueError("text of a message"))
    response = await edge.ask("GET", "/v1/models", origin="https://app.example")
    assert response.status == 500
    assert "text of" not in str(response.body)
    assert edge.refusals == {Reason.INTERNAL: 1}
    assert [line["event"] for line in edge.lines] == ["request.failed", "request.refused"]
    assert {b"x-request-id", b"access-control-allow-origin"} <= {name for name, _ in response.headers}


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
    edge = failing(ValueError())
    assert (await edge.ask("GET", path)).status == 404
    assert edge.refusals == {Reason.NOT_FOUND: 1}
