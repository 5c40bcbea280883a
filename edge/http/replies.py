"""The two ways in which an answer reaches a client over HTTP: piece by piece, or whole.

A dialect renders what is sent: it has an `AnswerEvents` and a `WholeAnswer` of its own.
"""

import asyncio
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Protocol

from edge.chat.reply import Reply
from edge.http.padding import render_padded
from edge.wire.responses import JSON
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import Headers, Send
from services.chassis.http.response_writer import ResponseWriter

_STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Asks proxies not to buffer chunks.
    (b"x-accel-buffering", b"no"),
]


class RenderedAnswer(Protocol):
    def cite(self, citations: Iterable[router.Citation]) -> None: ...

    def add_reasoning_data(self, data: str) -> None: ...


class AnswerEvents(RenderedAnswer, Protocol):
    """Renders an answer as events."""

    def opening(self, response: router.ChatResponse | None) -> bytes:
        """Renders what comes before the first piece, or before the end of an answer without one."""
        ...

    def deltas(self, response: router.ChatResponse) -> bytes: ...

    def closing(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes: ...

    def failure(self, error: LegatoError) -> bytes:
        """Renders the last event of a stream that failed."""
        ...

    def sign_of_life(self) -> bytes: ...


class WholeAnswer(RenderedAnswer, Protocol):
    """Gathers an answer, and renders it as one JSON object."""

    def add(self, response: router.ChatResponse) -> None: ...

    def render(self, finish_reason: str, usage: Usage, cut_by: str = "") -> bytes: ...


class HttpReply(Reply):
    def __init__(self, send: Send, answer: RenderedAnswer, ignored: Sequence[str]) -> None:
        super().__init__(ignored)
        self._send = send
        self._answer = answer

    def cite(self, citations: Sequence[router.Citation]) -> None:
        self._answer.cite(citations)

    def add_reasoning_data(self, data: str) -> None:
        self._answer.add_reasoning_data(data)

    def _all_headers(self) -> Headers:
        headers = self._headers
        if (started := self._started) is not None:
            headers = [
                *headers,
                (b"x-legato-max-tokens", b"%d" % started.max_tokens),
                (b"x-legato-attempt", b"%d" % started.attempt),
            ]
        if not self._ignored and not self._ignored_by_model:
            return headers
        names = ", ".join((*self._ignored, *self._ignored_by_model))
        return [*headers, (b"x-legato-ignored", names.encode())]


class StreamedHttpReply(HttpReply):
    """A stream of events. If its first token takes long, signs of life keep proxies from timing it out.

    The first of them opens the response and so fixes its status. It is sent only after a pause: an error before that
    still has its own status. A dialect whose pieces are many has a `write_packed` of its own."""

    is_streamed = True
    # Whether the dialect has a field for padding.
    has_padding_field = True

    def __init__(
        self, send: Send, events: AnswerEvents, ignored: Sequence[str], writer: ResponseWriter, keepalive_s: float
    ) -> None:
        super().__init__(send, events, ignored)
        self._events = events
        self._writer = writer
        self._keepalive_s = keepalive_s
        self._sign_due: asyncio.TimerHandle | None = None
        self._signing: asyncio.Future[None] | None = None

    # A function of C: it is asked for every piece.
    is_behind: bool = property(attrgetter("_writer.flow.write_paused"))  # type: ignore[assignment]

    @property
    def can_write(self) -> bool:
        return self.is_open and not self.is_behind

    async def prepare(self) -> None:
        await self._open()
        await self._writer.drain()

    def write(self, response: router.ChatResponse) -> None:
        events = b""
        if not self.delivered:
            self.delivered = True
            events = self._events.opening(response)
        if self.is_padded:
            events += render_padded(response, self._events.deltas, has_field=self.has_padding_field)
        else:
            events += self._events.deltas(response)
        self._writer.write(events)

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        events = b""
        if not self.delivered:
            self.delivered = True
            events = self._events.opening(None)
        await self._send_body(events + self._events.closing(finish_reason, usage, cut_by), more=False)

    def keep_alive(self) -> None:
        # A timer is cheaper than a task: nearly every answer begins before it is due.
        self._sign_due = asyncio.get_running_loop().call_later(self._keepalive_s, self._sign)

    def stop_keeping_alive(self) -> None:
        for pending in (self._sign_due, self._signing):
            if pending is not None:
                pending.cancel()

    def _sign(self) -> None:
        if self._signing is None or self._signing.done():
            # While the client does not read the last one, another would not help.
            self._signing = asyncio.ensure_future(self._send_body(self._events.sign_of_life(), more=True))
        self.keep_alive()

    async def fail(self, error: LegatoError) -> None:
        await self._send_body(self._events.failure(error), more=False)

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        await self._open()
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def _open(self) -> None:
        if not self.is_open:
            self.is_open = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEADERS, *self._all_headers()]}
            )


class WholeHttpReply(HttpReply):
    def __init__(self, send: Send, answer: WholeAnswer, ignored: Sequence[str]) -> None:
        super().__init__(send, answer, ignored)
        self._whole = answer

    def write(self, response: router.ChatResponse) -> None:
        self._whole.add(response)

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        body = self._whole.render(finish_reason, usage, cut_by)
        self.delivered = self.is_open = True
        headers = [JSON, (b"content-length", b"%d" % len(body)), *self._all_headers()]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
