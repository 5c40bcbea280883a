"""The edge's application, with parts that a test gives it, and what it answers."""

import io
import json
from dataclasses import fields
from typing import Any, NamedTuple, cast

from edge.api.app import EdgeApp
from edge.chat.chat_metrics import APIS, ChatMetrics
from edge.chat.edge_state import EdgeState
from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from tests.edge.metering_harness import ANN
from tests.support.fakes import FakeClock


class AnyKey:
    """Principals for which every request has the same valid key."""

    async def identify(self, scope: Any, needed: Any) -> Any:
        return ANN


class NoLimits:
    """Metering without rate limits."""

    async def admit(self, principal: Any) -> None: ...


class Response(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: Any


class ApiHarness:
    def __init__(self, **parts: Any) -> None:
        """Takes parts of the state, where they are not those of every key and no limits."""
        self.clock = FakeClock()
        self._lines = io.StringIO()
        self._registry = Registry()
        given: dict[str, Any] = dict.fromkeys(field.name for field in fields(EdgeState))
        given |= {"principals": AnyKey(), "metering": NoLimits(), "clock": self.clock}
        given |= {"log": Log("edge", self._lines, debug=True), "metrics": ChatMetrics(self._registry)}
        self.state = EdgeState(**(given | parts))
        self.app = EdgeApp(self.state)

    async def ask(self, method: str, path: str, query: str = "", **headers: str) -> Response:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "query_string": query.encode(),
        }
        await self.app(scope, cast(Any, None), send)
        start, body = sent
        return Response(start["status"], start["headers"], json.loads(body["body"]))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines.getvalue().splitlines()]

    @property
    def refusals(self) -> dict[Reason, float]:
        """Counted, by reason."""
        counted = {
            reason: sum(
                self._registry.get_sample_value("legato_refusals_total", {"reason": reason, "api": api}) or 0
                for api in APIS.values()
            )
            for reason in Reason
        }
        return {reason: count for reason, count in counted.items() if count}
