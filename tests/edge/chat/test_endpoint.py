"""The path of a chat from its endpoint to the exchange with metering."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from types import FrameType
from typing import Any, cast

import pytest

from edge.access.saturation import EdgeSaturation
from edge.api.app import EdgeApp
from edge.api.state import EdgeState
from edge.chat.endpoint import ChatEndpoint
from edge.metrics import ChatMetrics
from edge.wire.requests import Bodies
from services.chassis.exchange import ExchangeClient
from services.chassis.http.asgi import BODY, BODY_WRITER, WHEN_GONE
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import SystemClock
from tests.edge.chat_harness import ChatHarness, end, piece, saying
from tests.edge.metering_harness import ANN

OURS = ("edge.", "services.")
# From the endpoint to the exchange, both of them counted.
MOST_FRAMES = 7


class OpenEntrance:
    """Lets everybody in."""

    def __init__(self, chat_harness: ChatHarness) -> None:
        self._chat_harness = chat_harness

    async def identify(self, scope: Any, needed: Any) -> Any:
        return ANN

    def require_service(self) -> None: ...

    def track_key(self, principal: Any) -> Any:
        return self._chat_harness.running_keys.add(principal.key_id)

    def acquire_permit(self, key_id: str) -> Any:
        return nullcontext()

    def hold_place(self, account_id: str, count: int) -> Any:
        return nullcontext()

    def hold_memory(self, account_id: str) -> Any:
        return self._chat_harness.prompt_memory.hold(account_id)

    async def charge_request(self, principal: Any, scope: Any) -> Any:
        return self._chat_harness.admission

    async def charge_body(self, admitted: Any, body_bytes: int) -> None: ...


class OneModel:
    def class_for(self, model: str, principal: Any) -> str:
        return "forte"


def our_frames(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        module = frame.f_globals["__name__"]
        if module.startswith(OURS) and not module.startswith("edge.api."):
            yield f"{module}.{frame.f_code.co_qualname}"
        frame = frame.f_back


def edge_with(entrance: Any, chat_harness: ChatHarness, log: Log) -> EdgeApp:
    clock, metrics, metering = SystemClock(), ChatMetrics(Registry()), chat_harness.metering.metering
    chat = ChatEndpoint(
        entrance=entrance,
        models=cast(Any, OneModel()),
        bodies=Bodies(),
        metering=metering,
        journal=chat_harness.metering.journal,
        routers=chat_harness.routers,
        saturation=EdgeSaturation(clock),
        life_s=3600,
        keepalive_s=10,
        clock=clock,
        log=log,
        metrics=metrics,
    )
    state = EdgeState(
        entrance=entrance,
        chat=chat,
        models=cast(Any, None),
        metering=metering,
        clock=clock,
        log=log,
        metrics=metrics,
    )
    return EdgeApp(state)


def scope_of(given: bytes, chat_harness: ChatHarness) -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [(b"content-length", b"%d" % len(given))],
        "query_string": b"",
        BODY: given,
        WHEN_GONE: lambda tell: None,
        BODY_WRITER: chat_harness,
    }


async def test_few_frames_lie_between_the_endpoint_and_the_exchange(
    chat_harness: ChatHarness, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat_harness.add_routers(saying(piece("Hello", 1), end(1)))
    entrance = cast(Any, OpenEntrance(chat_harness))
    frames: list[list[str]] = []
    begin = ExchangeClient._begin

    def noted(self: ExchangeClient, method: str, *question: Any) -> Any:
        if method == "Reserve":
            # The first is the exchange's own.
            frames.append(list(our_frames(sys._getframe(1))))
        return begin(self, method, *question)

    monkeypatch.setattr(ExchangeClient, "_begin", noted)
    app = edge_with(entrance, chat_harness, log)
    given = b'{"model":"forte","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
    scope = scope_of(given, chat_harness)
    await app(scope, cast(Any, None), chat_harness._send)
    assert chat_harness.text == "Hello"
    [found] = frames
    assert len(found) <= MOST_FRAMES, found


class LimitingEntrance(OpenEntrance):
    """Leaves it to metering who may come in, with the hold."""

    async def charge_request(self, principal: Any, scope: Any) -> Any:
        return self._chat_harness.metering.metering.prepare_admission(ANN, 1)

    async def rates(self, scope: Any, error: Any) -> list[Any]:
        return []


async def test_mistaken_requests_count_towards_the_rate_limit_and_are_refused_by_it_first(
    chat_harness: ChatHarness, log: Log
) -> None:
    app = edge_with(LimitingEntrance(chat_harness), chat_harness, log)
    statuses = []
    for _ in range(5):
        await app(scope_of(b'{"model":"forte"}', chat_harness), cast(Any, None), chat_harness._send)
        statuses.append(chat_harness.status)
    # The limit of three requests, by a clock that stands still.
    assert statuses == [400, 400, 400, 429, 429]
