"""The two ways in which an answer reaches the client: piece by piece, or whole."""

from collections.abc import Awaitable, Iterable
from typing import Protocol

from edge.wire.asgi import Headers, Send
from edge.wire.completion_json import COMMENT, Chunks, Folded, error_event
from edge.wire.responses import send_json
from protos.router.v1 import router_pb2 as router
from protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError

_STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Proxies that would gather chunks are asked not to.
    (b"x-accel-buffering", b"no"),
]


class Reply(Protocol):
    # Whether pieces are handed to the client as they come, or gathered for one answer at the end.
    is_streamed: bool
    # The response has begun, so its status is told.
    is_open: bool
    # Something of the answer was handed to the client's socket.
    delivered: bool

    def record_start(self, started: router.Started) -> None:
        """In the headers, unless they are gone already."""
        ...

    def deliver(self, response: router.ChatResponse) -> Awaitable[None]: ...

    def cite(self, citations: Iterable[router.Citation]) -> None:
        """Before the end."""
        ...

    async def finish(self, finish_reason: str, usage: Usage) -> None: ...

    async def keep_alive(self) -> None:
        """While there is nothing to deliver yet."""
        ...

    async def fail(self, error: LegatoError) -> None:
        """After the response was opened: tell it, and end."""
        ...


class StreamedReply:
    is_streamed = True

    def __init__(self, send: Send, completion_id: str, created_s: int, class_id: str, headers: Headers) -> None:
        self.is_open = False
        self.delivered = False
        self._send = send
        self._headers = headers
        self._chunks = Chunks(completion_id, created_s, class_id)

    def record_start(self, started: router.Started) -> None:
        self._headers = [*self._headers, *_headers_of(started)]

    def deliver(self, response: router.ChatResponse) -> Awaitable[None]:
        chunks = self._chunks.deltas(response)
        if self.delivered:
            # As for nearly every piece: without a step between it and the socket.
            return self._send({"type": "http.response.body", "body": chunks, "more_body": True})
        return self._deliver(chunks, more=True, speaks=bool(response.contents) and not response.refusal)

    def cite(self, citations: Iterable[router.Citation]) -> None:
        self._chunks.cite(citations)

    async def finish(self, finish_reason: str, usage: Usage) -> None:
        await self._deliver(self._chunks.closing_chunks(finish_reason, usage), more=False)

    async def keep_alive(self) -> None:
        await self._write(COMMENT, more=True)

    async def fail(self, error: LegatoError) -> None:
        await self._write(error_event(error), more=False)

    async def _deliver(self, chunks: bytes, *, more: bool, speaks: bool = True) -> None:
        if not self.delivered:
            self.delivered = True
            chunks = self._chunks.role(speaks=speaks) + chunks
        await self._write(chunks, more=more)

    async def _write(self, body: bytes, *, more: bool) -> None:
        if not self.is_open:
            self.is_open = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEADERS, *self._headers]}
            )
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


class WholeReply:
    is_streamed = False
    is_open = False

    def __init__(self, send: Send, completion_id: str, created_s: int, class_id: str, headers: Headers) -> None:
        self.delivered = False
        self._send = send
        self._headers = headers
        self._folded = Folded(completion_id, created_s, class_id)

    def record_start(self, started: router.Started) -> None:
        self._headers = [*self._headers, *_headers_of(started)]

    async def deliver(self, response: router.ChatResponse) -> None:
        self._folded.add(response)

    def cite(self, citations: Iterable[router.Citation]) -> None:
        self._folded.cite(citations)

    async def finish(self, finish_reason: str, usage: Usage) -> None:
        body = self._folded.completion(finish_reason, usage)
        self.delivered = self.is_open = True
        await send_json(self._send, 200, body, self._headers)

    async def keep_alive(self) -> None:
        """Whoever waits for a whole answer has to wait: there is no room for anything before it."""

    async def fail(self, error: LegatoError) -> None:
        raise error


def _headers_of(started: router.Started) -> Headers:
    """The limit on output as it was fitted, and which attempt at a model was answered."""
    return [(b"x-legato-max-tokens", b"%d" % started.max_tokens), (b"x-legato-attempt", b"%d" % started.attempt)]
