"""The two ways in which an answer reaches a client over HTTP: piece by piece, or whole."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter

from edge.chat.reply import Reply
from edge.wire.completion_json import DELTA_END, Chunks, Completion, error_event
from edge.wire.responses import JSON
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import Headers, Send
from services.chassis.http.response_writer import COMMENT, ResponseWriter
from services.chassis.packed_pieces import PACKED_HEAD_BYTES, SEPARATOR

_STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Asks proxies not to buffer chunks.
    (b"x-accel-buffering", b"no"),
]


class HttpReply(Reply):
    def __init__(self, send: Send, completion: Chunks | Completion, ignored: Sequence[str]) -> None:
        super().__init__(ignored)
        self._send = send
        self._completion = completion

    def cite(self, citations: Sequence[router.Citation]) -> None:
        self._completion.cite(citations)

    def add_reasoning_data(self, data: str) -> None:
        self._completion.add_reasoning_data(data)

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


class StreamedReply(HttpReply):
    """A stream of events. If its first token takes long, comments keep proxies from timing it out.

    The first comment opens the response and so fixes its status. It is sent only after a pause: an error before that
    still has its own status."""

    is_streamed = True

    def __init__(
        self, send: Send, chunks: Chunks, ignored: Sequence[str], writer: ResponseWriter, keepalive_s: float
    ) -> None:
        super().__init__(send, chunks, ignored)
        self._chunks = chunks
        self._writer = writer
        self._keepalive_s = keepalive_s
        self._comment_due: asyncio.TimerHandle | None = None
        self._commenting: asyncio.Future[None] | None = None

    # A function of C: it is asked for every piece.
    is_behind: bool = property(attrgetter("_writer.flow.write_paused"))  # type: ignore[assignment]

    @property
    def can_write(self) -> bool:
        return self.is_open and not self.is_behind

    async def prepare(self) -> None:
        await self._open()
        await self._writer.drain()

    def write(self, response: router.ChatResponse) -> None:
        chunks = self._chunks.deltas(response)
        if not self.delivered:
            self.delivered = True
            chunks = self._chunks.role(speaks=_speaks(response)) + chunks
        self._writer.write(chunks)

    def write_packed(self, packed: bytes) -> None:
        # Rendered here, and not by a method of the chunks: all but the first and the last piece come this way.
        chunks, texts_json = self._chunks, packed[PACKED_HEAD_BYTES:]
        self._writer.write(chunks.content_head + texts_json.replace(SEPARATOR, chunks.between_contents) + DELTA_END)

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        chunks = self._chunks.closing_chunks(finish_reason, usage, cut_by)
        if not self.delivered:
            self.delivered = True
            chunks = self._chunks.role() + chunks
        await self._send_body(chunks, more=False)

    def keep_alive(self) -> None:
        # A timer is cheaper than a task: nearly every answer begins before it is due.
        self._comment_due = asyncio.get_running_loop().call_later(self._keepalive_s, self._comment)

    def stop_keeping_alive(self) -> None:
        for pending in (self._comment_due, self._commenting):
            if pending is not None:
                pending.cancel()

    def _comment(self) -> None:
        if self._commenting is None or self._commenting.done():
            # While the client does not read the last comment, another would not help.
            self._commenting = asyncio.ensure_future(self._send_body(COMMENT, more=True))
        self.keep_alive()

    async def fail(self, error: LegatoError) -> None:
        await self._send_body(error_event(error), more=False)

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        await self._open()
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def _open(self) -> None:
        if not self.is_open:
            self.is_open = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": [*_STREAM_HEADERS, *self._all_headers()]}
            )


class WholeReply(HttpReply):
    _completion: Completion

    def write(self, response: router.ChatResponse) -> None:
        self._completion.add(response)

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        body = self._completion.render(finish_reason, usage, cut_by)
        self.delivered = self.is_open = True
        headers = [JSON, (b"content-length", b"%d" % len(body)), *self._all_headers()]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _speaks(response: router.ChatResponse) -> bool:
    """Returns whether an answer begins with text, or with thoughts, behind which there mostly is some."""
    return bool(response.reasoning or (response.contents and not response.refusal))
