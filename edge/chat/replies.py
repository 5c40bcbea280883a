"""The two ways in which an answer reaches the client: piece by piece, or whole."""

import asyncio
from collections.abc import Sequence
from operator import attrgetter

from edge.wire.completion_json import DELTA_END, Chunks, Folded, error_event
from edge.wire.responses import JSON
from legato_protos.router.v1 import router_pb2 as router
from legato_protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import Headers, Send
from services.chassis.http.response_writer import COMMENT, ResponseWriter
from services.chassis.packed_pieces import PACKED_HEAD_BYTES, SEPARATOR, unpack_piece

_STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Asks proxies not to buffer chunks.
    (b"x-accel-buffering", b"no"),
]


class Reply:
    """The response to a chat. Until it is sent, its headers are collected."""

    # Pieces are sent to the client as they come; otherwise they are gathered for one answer at the end.
    is_streamed = False
    # True if the client does not keep up with what was written.
    is_behind = False

    def __init__(self, send: Send, completion: Chunks | Folded, ignored: Sequence[str]) -> None:
        """`ignored` are the fields that no model is called with."""
        self._send = send
        # Adds citations, before the end.
        self.cite = completion.cite
        # The response has begun, so its status is fixed.
        self.is_open = False
        # Some of the answer was written to the client's socket.
        self.delivered = False
        self._headers: Headers = []
        self._ignored = ignored
        self._ignored_by_model: Sequence[str] = ()

    @property
    def can_write(self) -> bool:
        """True if a piece can be written at once."""
        return True

    def put_headers(self, headers: Headers) -> None:
        """Adds headers, which are not sent yet."""
        self._headers = [*self._headers, *headers]

    def record_start(self, started: router.Started) -> None:
        """Adds the output limit that was applied, and the number of the attempt that was answered, to the headers."""
        self.put_headers(
            [(b"x-legato-max-tokens", b"%d" % started.max_tokens), (b"x-legato-attempt", b"%d" % started.attempt)]
        )
        self._ignored_by_model = started.ignored

    def record_ignored(self, names: Sequence[str]) -> None:
        """Replaces the parameters that the model was called without, for the headers, if not sent yet."""
        self._ignored_by_model = names

    def _all_headers(self) -> Headers:
        if not self._ignored and not self._ignored_by_model:
            return self._headers
        names = ", ".join((*self._ignored, *self._ignored_by_model))
        return [*self._headers, (b"x-legato-ignored", names.encode())]

    async def prepare(self) -> None:
        """Waits until a piece can be written."""

    def write(self, response: router.ChatResponse) -> None:
        raise NotImplementedError

    def write_packed(self, packed: bytes) -> None:
        """Writes a packed piece, which is not the first."""
        self.write(unpack_piece(packed))

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        """Ends the answer; `cut_by` says what ended one whose credit was used up."""
        raise NotImplementedError

    def keep_alive(self) -> None:
        """Begins to send keepalive comments; a whole answer cannot have anything before it."""

    def stop_keeping_alive(self) -> None:
        """Stops that, before anything else is sent."""

    async def fail(self, error: LegatoError) -> None:
        """Reports an error once the response is open, and ends it."""
        raise error


class StreamedReply(Reply):
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
            chunks = self._chunks.role(speaks=bool(response.contents) and not response.refusal) + chunks
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


class WholeReply(Reply):
    def __init__(self, send: Send, folded: Folded, ignored: Sequence[str]) -> None:
        super().__init__(send, folded, ignored)
        self._folded = folded

    def write(self, response: router.ChatResponse) -> None:
        self._folded.add(response)

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        body = self._folded.completion(finish_reason, usage, cut_by)
        self.delivered = self.is_open = True
        headers = [JSON, (b"content-length", b"%d" % len(body)), *self._all_headers()]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
