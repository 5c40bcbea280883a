"""The path of a chat from its endpoint to the exchange with metering."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, cast

import pytest

from edge.access.maintenance import MaintenanceMode
from edge.api import messages
from edge.api.app import EdgeApp
from edge.api.dialects import CHATS
from edge.http import http_chat
from services.chassis.errors import LegatoError, Reason
from services.chassis.exchange.client import ExchangeClient
from services.chassis.http.asgi import BODY, BODY_WRITER, WHEN_GONE, Headers
from services.chassis.http.body_progress import TimedReceive
from services.chassis.load.fair_budget import FairBudget
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from tests.edge.api_harness import AnyKey
from tests.edge.chat_harness import ChatHarness, end, piece, saying
from tests.edge.metering_harness import ANN

OURS = ("edge.", "services.")
# From the endpoint to the exchange, both of them counted.
MOST_FRAMES = 8

LAST_RATES: Headers = [(b"x-ratelimit-remaining-requests", b"199")]
ASKED_RATES: Headers = [(b"x-ratelimit-remaining-requests", b"200")]


class TrackedKey(AnyKey):
    """Principals for which every request has the same valid key, which the harness tracks."""

    maintenance = MaintenanceMode()

    def __init__(self, chat_harness: ChatHarness) -> None:
        self._running_keys = chat_harness.running_keys

    def recall(self, headers: Any) -> Any:
        return ANN

    def track_key(self, principal: Any) -> Any:
        return self._running_keys.add(principal.key_id)


class OneModel:
    def class_for(self, model: str, principal: Any) -> str:
        return "forte"


def our_frames(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        module = frame.f_globals["__name__"]
        if module.startswith(OURS) and not module.startswith("edge.api."):
            yield f"{module}.{frame.f_code.co_qualname}"
        frame = frame.f_back


def edge_with(chat_harness: ChatHarness, log: Log, metering: Any = None) -> EdgeApp:
    edge = replace(
        chat_harness.edge(),
        principals=cast(Any, TrackedKey(chat_harness)),
        models=cast(Any, OneModel()),
        places=FairBudget("A place", 10_000),
    )
    return EdgeApp(edge if metering is None else replace(edge, metering=metering))


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


@pytest.mark.parametrize("path", [*CHATS, "/v1/messages/count_tokens"])
async def test_a_body_that_stalls_is_told_in_the_shape_of_its_dialect(
    path: str, chat_harness: ChatHarness, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (http_chat, messages):
        monkeypatch.setattr(module, "TimedReceive", partial(TimedReceive, within_s=0.01))
    scope = scope_of(b"", chat_harness) | {"path": path}
    scope["headers"] = [(b"content-length", b"100")]
    del scope[BODY]
    pieces = [{"type": "http.request", "body": b'{"model":', "more_body": True}]

    async def receive() -> dict[str, Any]:
        if not pieces:
            await asyncio.Event().wait()
        return pieces.pop()

    await edge_with(chat_harness, log)(scope, receive, chat_harness._send)
    told = json.loads(chat_harness.received)
    assert (chat_harness.status, told["error"]["code"]) == (408, "request_timeout")
    assert told["error"]["type"] == "invalid_request_error"
    if path.startswith("/v1/messages"):
        assert (told["type"], told["request_id"].encode()) == ("error", chat_harness.headers[b"request-id"])
    else:
        assert told.keys() == {"error"}


async def test_few_frames_lie_between_the_endpoint_and_the_exchange(
    chat_harness: ChatHarness, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat_harness.add_routers(saying(piece("Hello", 1), end(1)))
    frames: list[list[str]] = []
    begin = ExchangeClient._begin

    def noted(self: ExchangeClient, method: str, *question: Any) -> Any:
        if method == "Reserve":
            # The first is the exchange's own.
            frames.append(list(our_frames(sys._getframe(1))))
        return begin(self, method, *question)

    monkeypatch.setattr(ExchangeClient, "_begin", noted)
    app = edge_with(chat_harness, log)
    given = b'{"model":"forte","stream":true,"messages":[{"role":"user","content":"Hi"}]}'
    scope = scope_of(given, chat_harness)
    await app(scope, cast(Any, None), chat_harness._send)
    assert chat_harness.text == "Hello"
    [found] = frames
    assert len(found) <= MOST_FRAMES, found


async def test_mistaken_requests_count_towards_the_rate_limit_and_are_refused_by_it_first(
    chat_harness: ChatHarness, log: Log
) -> None:
    app = edge_with(chat_harness, log)
    statuses = []
    for _ in range(5):
        await app(scope_of(b'{"model":"forte"}', chat_harness), cast(Any, None), chat_harness._send)
        statuses.append(chat_harness.status)
    # The limit of three requests, by a clock that stands still.
    assert statuses == [400, 400, 400, 429, 429]
    assert chat_harness.failures == {("REQUEST_INVALID", "", False): 3, ("RATE_LIMITED", "", False): 2}


@pytest.mark.parametrize("taken", [0, 500])
async def test_body_of_unknown_length_takes_tokens_by_its_actual_size(
    chat_harness: ChatHarness, log: Log, taken: int
) -> None:
    """A client that sends in chunks announces no size; of 1,000 tokens, two thirds are asked for."""
    metering = chat_harness.metering.metering
    await metering.admit(ANN, taken)
    scope = scope_of(b"", chat_harness)
    scope["headers"] = [(b"transfer-encoding", b"chunked")]
    del scope[BODY]
    given = b'{"model":"forte","messages":"%b"}' % (b"x" * 2_600)
    chunks = [given[:1_000], given[1_000:]]

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    await edge_with(chat_harness, log)(scope, receive, chat_harness._send)
    await metering.settled()
    # The request is mistaken, so it gives its tokens back. What is refused by the limits takes nothing.
    assert chat_harness.status == (429 if taken else 400)
    assert chat_harness.headers[b"x-ratelimit-remaining-requests"] == (b"2" if taken else b"1")
    assert chat_harness.headers[b"x-ratelimit-remaining-tokens"] == (b"500" if taken else b"1000")


async def test_body_of_unknown_length_is_not_read_if_the_rate_limit_is_used_up(
    chat_harness: ChatHarness, log: Log
) -> None:
    for _ in range(3):
        await chat_harness.metering.metering.admit(ANN, 0)
    scope = scope_of(b"", chat_harness)
    scope["headers"] = [(b"transfer-encoding", b"chunked")]
    del scope[BODY]

    async def receive() -> dict[str, Any]:
        raise AssertionError("the body was read")

    await edge_with(chat_harness, log)(scope, receive, chat_harness._send)
    assert chat_harness.status == 429


class KnownRates:
    """A metering that is away, of whose rate limits the edge knows the last state or none."""

    def __init__(self, reason: Reason, last: Headers | None) -> None:
        # Counts itself.
        self.failures = self
        self.counted: list[str] = []
        self._reason = reason
        self._last = last

    def prepare_admission(self, principal: Any, tokens: int) -> Any:
        raise LegatoError(self._reason, Sentence.verbatim("Not now."))

    def last_rates(self, principal: Any) -> Headers | None:
        return self._last

    async def rates(self, principal: Any) -> Headers:
        return ASKED_RATES

    def count(self, principal: Any, class_id: str, reason: str) -> None:
        self.counted.append(reason)


@pytest.mark.parametrize(
    ("reason", "last", "told"),
    [
        (Reason.UNAVAILABLE, LAST_RATES, LAST_RATES),
        (Reason.UNAVAILABLE, None, []),
        (Reason.MAINTENANCE, None, []),
        (Reason.SCOPE_MISSING, LAST_RATES, ASKED_RATES),
    ],
)
async def test_metering_that_is_away_is_not_asked_for_the_headers_of_a_refusal(
    chat_harness: ChatHarness, log: Log, reason: Reason, last: Headers | None, told: Headers
) -> None:
    metering = KnownRates(reason, last)
    app = edge_with(chat_harness, log, metering)
    await app(scope_of(b"{}", chat_harness), cast(Any, None), chat_harness._send)
    assert [(name, value) for name, value in chat_harness.headers.items() if b"ratelimit" in name] == told
    assert metering.counted == [reason]
