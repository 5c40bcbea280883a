"""The two ways in which an answer reaches the client: piece by piece, or whole."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Protocol

from edge.wire.completion_json import DELTA_END, Chunks, Folded, error_event
from edge.wire.responses import send_json
from protos.router.v1 import router_pb2 as router
from protos.type.v1.usage_pb2 import Usage
from services.chassis.errors import LegatoError
from services.chassis.http.asgi import BodyWriter, Headers, Send
from services.chassis.http.response_writer import COMMENT
from services.chassis.packed_pieces import PACKED_HEAD_BYTES, SEPARATOR, unpack_piece

_STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Asks proxies not to buffer chunks.
    (b"x-accel-buffering", b"no"),
]


class Reply(Protocol):
    # Pieces are sent to the client as they come; otherwise they are gathered for one answer at the end.
    is_streamed: bool
    # The response has begun, so its status is fixed.
    is_open: bool
    # Some of the answer was written to the client's socket.
    delivered: bool

    def put_headers(self, headers: Headers) -> None:
        """Adds headers, which are not sent yet."""
        ...

    def record_start(self, started: router.Started) -> None:
        """Adds its figures to the headers, if not sent yet."""
        ...

    def record_ignored(self, names: Sequence[str]) -> None:
        """Replaces the parameters that the model was called without, for the headers, if not sent yet."""
        ...

    @property
    def is_behind(self) -> bool:
        """True if the client does not keep up with what was written."""
        ...

    @property
    def can_write(self) -> bool:
        """True if a piece can be written at once."""
        ...

    async def prepare(self) -> None:
        """Waits until a piece can be written."""
        ...

    def write(self, response: router.ChatResponse) -> None: ...

    def write_packed(self, packed: bytes) -> None:
        """Writes a packed piece, which is not the first."""
        ...

    def cite(self, citations: Iterable[router.Citation]) -> None:
        """Adds citations, before the end."""
        ...

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        """Ends the answer; `cut_by` says what ended one whose credit was used up."""
        ...

    async def keep_alive(self) -> None:
        """Sends a keepalive comment before the first piece."""
        ...

    async def fail(self, error: LegatoError) -> None:
        """Reports an error once the response is open, and ends it."""
        ...


class _ResponseHeaders:
    """The headers of a response that is not sent yet."""

    def __init__(self, ignored: Sequence[str]) -> None:
        """`ignored` are the fields that no model is called with."""
        self._headers: Headers = []
        self._ignored = ignored
        self._ignored_by_model: Sequence[str] = ()

    def put_headers(self, headers: Headers) -> None:
        self._headers = [*self._headers, *headers]

    def record_start(self, started: router.Started) -> None:
        self._headers = [*self._headers, *_headers_of(started)]
        self._ignored_by_model = started.ignored

    def record_ignored(self, names: Sequence[str]) -> None:
        self._ignored_by_model = names

    def _all_headers(self) -> Headers:
        if not self._ignored and not self._ignored_by_model:
            return self._headers
        names = ", ".join((*self._ignored, *self._ignored_by_model))
        return [*self._headers, (b"x-legato-ignored", names.encode())]


class StreamedReply(_ResponseHeaders):
    is_streamed = True

    def __init__(
        self,
        send: Send,
        writer: BodyWriter,
        completion_id: str,
        created_s: int,
        class_id: str,
        ignored: Sequence[str] = (),
    ) -> None:
        super().__init__(ignored)
        self.is_open = False
        self.delivered = False
        self._send = send
        self._writer = writer
        self._chunks = Chunks(completion_id, created_s, class_id)

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

    def cite(self, citations: Iterable[router.Citation]) -> None:
        self._chunks.cite(citations)

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        chunks = self._chunks.closing_chunks(finish_reason, usage, cut_by)
        if not self.delivered:
            self.delivered = True
            chunks = self._chunks.role() + chunks
        await self._send_body(chunks, more=False)

    async def keep_alive(self) -> None:
        await self._send_body(COMMENT, more=True)

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


class WholeReply(_ResponseHeaders):
    is_streamed = False
    is_open = False
    is_behind = False
    can_write = True

    def __init__(
        self,
        send: Send,
        writer: BodyWriter,
        completion_id: str,
        created_s: int,
        class_id: str,
        ignored: Sequence[str] = (),
    ) -> None:
        super().__init__(ignored)
        self.delivered = False
        self._send = send
        self._folded = Folded(completion_id, created_s, class_id)

    async def prepare(self) -> None:
        """Does nothing: pieces are gathered."""

    def write(self, response: router.ChatResponse) -> None:
        self._folded.add(response)

    def write_packed(self, packed: bytes) -> None:
        self._folded.add(unpack_piece(packed))

    def cite(self, citations: Iterable[router.Citation]) -> None:
        self._folded.cite(citations)

    async def finish(self, finish_reason: str, usage: Usage, cut_by: str = "") -> None:
        body = self._folded.completion(finish_reason, usage, cut_by)
        self.delivered = self.is_open = True
        await send_json(self._send, 200, body, self._all_headers())

    async def keep_alive(self) -> None:
        """Does nothing: a whole answer cannot have anything before it."""

    async def fail(self, error: LegatoError) -> None:
        raise error


def _headers_of(started: router.Started) -> Headers:
    """Returns headers with the output limit that was applied and the number of the attempt that was answered."""
    return [(b"x-legato-max-tokens", b"%d" % started.max_tokens), (b"x-legato-attempt", b"%d" % started.attempt)]
