"""The endpoint that CONTRIBUTING.md adds, as it stands there: it has a scope, a rate limit and a description."""

import json
import re
import types
from pathlib import Path
from typing import Any, cast

import pytest

from edge.api.app import EdgeApp
from edge.api.state import EdgeState
from edge.backends.auth import Scope
from edge.metrics import ChatMetrics
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from tests.edge.metering_harness import ANN
from tests.support.fakes import FakeClock

GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"


class ScopedEntrance:
    """Knows one key, which has the scope `models` alone."""

    async def identify(self, scope: Any, needed: Any) -> Any:
        if not any(name == b"authorization" for name, _ in scope["headers"]):
            raise LegatoError(Reason.KEY_INVALID, "The API key is not valid.")
        assert needed == Scope.SCOPE_MODELS
        return ANN


class TwoRequests:
    """A rate limit of two requests."""

    def __init__(self) -> None:
        self._left = 2

    async def admit(self, principal: Any) -> None:
        self._left -= 1
        if self._left < 0:
            raise LegatoError(Reason.RATE_LIMITED, "Too many.", retry_after_s=1)


@pytest.fixture
def app() -> EdgeApp:
    [source] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    module = types.ModuleType("hello")
    exec(compile(source, str(GUIDE), "exec"), module.__dict__)
    parts: dict[str, Any] = {"entrance": ScopedEntrance(), "metering": TwoRequests(), "chat": None, "models": None}
    app = EdgeApp(EdgeState(**parts, clock=FakeClock(), log=Log("edge"), metrics=ChatMetrics(Registry())))
    app.include_router(module.router)
    return app


async def ask(app: EdgeApp, headers: dict[bytes, bytes]) -> tuple[int, Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/v1/hello", "headers": [*headers.items()], "query_string": b""}
    await app(scope, cast(Any, None), send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def test_it_needs_a_key_and_takes_from_the_keys_rate_limit(app: EdgeApp) -> None:
    assert (await ask(app, {}))[0] == 401
    key = {b"authorization": b"Bearer sk"}
    answers = [await ask(app, key) for _ in range(3)]
    assert [status for status, _ in answers] == [200, 200, 429]
    assert answers[0][1] == {"account": ANN.account_id}


def test_it_is_described(app: EdgeApp) -> None:
    described = app.openapi()["paths"]["/v1/hello"]["get"]
    assert "`models`" in described["description"]
    assert {"200", "401", "403", "429"} <= described["responses"].keys()
