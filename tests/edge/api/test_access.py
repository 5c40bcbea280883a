"""The endpoint that CONTRIBUTING.md adds, as it stands there: it has a scope, a rate limit and a description."""

import re
import types
from pathlib import Path
from typing import Any

import pytest

from edge.backends.auth import Scope
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.edge.api_harness import ApiHarness
from tests.edge.metering_harness import ANN

GUIDE = Path(__file__).parents[3] / "CONTRIBUTING.md"


class ScopedKeys:
    """Knows one key, which has the scope `models` alone."""

    async def identify(self, scope: Any, needed: Any) -> Any:
        if not any(name == b"authorization" for name, _ in scope["headers"]):
            raise LegatoError(Reason.KEY_INVALID, Sentence.verbatim("The API key is not valid."))
        assert needed == Scope.SCOPE_MODELS
        return ANN


class TwoRequests:
    """A rate limit of two requests."""

    def __init__(self) -> None:
        self._left = 2

    async def admit(self, principal: Any) -> None:
        self._left -= 1
        if self._left < 0:
            raise LegatoError(Reason.RATE_LIMITED, Sentence.verbatim("Too many."), retry_after_s=1)


@pytest.fixture
def edge() -> ApiHarness:
    [source] = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    module = types.ModuleType("hello")
    exec(compile(source, str(GUIDE), "exec"), module.__dict__)
    edge = ApiHarness(principals=ScopedKeys(), metering=TwoRequests())
    edge.app.include_router(module.router)
    return edge


async def test_it_needs_a_key_and_takes_from_the_keys_rate_limit(edge: ApiHarness) -> None:
    assert (await edge.ask("GET", "/v1/hello")).status == 401
    answers = [await edge.ask("GET", "/v1/hello", authorization="Bearer sk") for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].body == {"account": ANN.account_id}


def test_it_is_described(edge: ApiHarness) -> None:
    described = edge.app.openapi()["paths"]["/v1/hello"]["get"]
    assert "`models`" in described["description"]
    assert {"200", "401", "403", "429"} <= described["responses"].keys()
