"""One HTTP/1.1 client connection: one request at a time, with a streamed response.

Only what a provider needs: no redirects, no proxies, no cookies, no compression.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from services.chassis.timing.deadlines import Deadlines
from services.router.compiled import ChunkPosition
from services.router.providers.http.failures import (
    LARGEST_FRAMING_BYTES,
    LARGEST_HEAD_BYTES,
    MOST_HEADERS,
    Interrupted,
    Refused,
    check_framing,
)
from services.router.providers.http.read_rounds import RoundReader

# Written at once; a larger body is written in slices, with backpressure.
LARGEST_BODY_AT_ONCE_BYTES = 256 * 1024
BODY_SLICE_BYTES = 64 * 1024
# Buffered response bytes before reading is paused (backpressure from a slow client).
READ_AHEAD_BYTES = 16 * 1024
# Many servers close a connection after 5 s idle. Staying below avoids writing to a closing connection.
KEEP_ALIVE_S = 4.0
# A process that stood still meets its timers before it reads. So the socket is read for this long after a deadline;
# less than a millisecond would be no timer for the event loop.
LAST_READ_S = 0.01
# A server that was about to close an idle connection has done so within this time; a later close is deliberate.
CLOSED_UNHEARD_WITHIN_S = 1.0


class Owner(Protocol):
    def take_back(self, connection: "HttpConnection") -> bool:
        """Returns whether the idle connection is kept for reuse."""
        ...

    def forget(self, connection: "HttpConnection") -> None:
        """Removes a closed connection."""
        ...


class HttpConnection(asyncio.Protocol):
    """A pooled connection: acquire it, post one request, read any part of the response, release it."""

    def __init__(self, owner: Owner, deadlines: Deadlines) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._deadline = deadlines.new(self._on_deadline)
        self._chunk_position = position = ChunkPosition()
        # Called by the parser, for every chunk.
        self.on_chunk_header, self.on_chunk_complete = position.begin, position.end
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        # None if every read is an event of the loop.
        self._round_reader: RoundReader | None = None
        # The single waiter for any state change.
        self._waiter: asyncio.Future[None] | None = None
        # Takes what arrives while a reader waits.
        self._consume: Callable[[bytes], bool] | None = None
        # Is offered a read first, as it is; the consumer may change it.
        self.consume_read: Callable[[bytes], int] | None = None
        # Why the connection failed.
        self._failure: str | None = None
        self._is_reading_paused = False
        self._is_writing_paused = False
        # Deadline of the whole response, or the idle timeout.
        self._answer_by_s: float | None = None
        self._silence_s = 0.0
        # The end of the last read after a deadline.
        self._last_read_by_s: float | None = None
        # It was kept alive after an earlier response, as far as we know by the server too.
        self._was_kept = False
        self._asked_at_s = 0.0
        # Closed by the server without a byte of a response, soon after the request.
        self.was_closed_unheard = False
        self._begin(is_asked=False)

    def _begin(self, *, is_asked: bool) -> None:
        # Status of the response: 0 until its head is complete.
        self.status = 0
        # With names in lower case.
        self.headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._received: list[bytes] = []
        self._received_bytes = 0
        # Whether the last chunk is complete and nothing of the next has arrived.
        self._is_between_chunks = False
        self._chunk_position.begin()
        # Bytes read since the request, those of the body, and those since the last body byte.
        self._read_bytes = 0
        self.body_bytes = 0
        self._bytes_without_body = 0
        self._is_written = False
        self._may_be_kept = not is_asked
        # The response is complete.
        self.is_whole = not is_asked

    # Interface for callers.

    async def post(self, head: bytes, body: bytes, on_sent: Callable[[], None] | None = None) -> None:
        """Sends a request and waits for the response head. `on_sent` is called once the whole request is written; the
        body is not kept any longer."""
        transport = self._transport
        self._deadline.clear()
        if transport is None or not self._is_usable:
            raise Interrupted("broke the connection")
        self._begin(is_asked=True)
        self._asked_at_s = self._loop.time()
        if len(body) <= LARGEST_BODY_AT_ONCE_BYTES:
            transport.write(head + body)
            self._is_written = True
        else:
            await self._write(transport, head, memoryview(body))
        del body
        if on_sent is not None and self._is_written:
            on_sent()
        while not self.status:
            await self._change()

    async def read(
        self, consume: Callable[[bytes], bool] | None = None, consume_read: Callable[[bytes], int] | None = None
    ) -> bytes:
        """Returns the bytes received so far; empty at the end.

        With `consume`, only bytes that are here already are returned. Later ones are passed to it as they arrive, while
        this waits; once it returns False, empty bytes are returned. `consume_read` is offered them first, before they
        are parsed, if they begin where a chunk does: it returns the bytes of the body if it took whole chunks, or 0."""
        while not self._received and not self.is_whole:
            self._consume, self.consume_read = consume, consume_read
            try:
                await self._change()
                if self._consume is not consume:
                    return b""
            finally:
                self._consume = self.consume_read = None
        received = self._take_received()
        self._read_or_pause()
        return received

    def allow_rounds(self, reader: RoundReader) -> None:
        """Prepares the connection for `read_in_rounds`."""
        self._round_reader = reader

    def read_in_rounds(self) -> None:
        """Reads the rest of the response in rounds with others, and so some milliseconds late."""
        if self._round_reader is not None and self._is_usable and not self._is_reading_paused and not self.is_whole:
            self._round_reader.join()

    def _leave_rounds(self) -> None:
        if self._round_reader is not None:
            self._round_reader.leave()

    def _take_received(self) -> bytes:
        received = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        self._received_bytes = 0
        return received

    def answer_within(self, limit_s: float) -> None:
        """Sets a deadline, counted from now, for everything that is awaited."""
        self._answer_by_s = self._loop.time() + limit_s

    def limit_silence(self, silence_s: float) -> None:
        """Replaces the deadline by an idle timeout that restarts with every byte."""
        self._answer_by_s = None
        self._silence_s = silence_s

    def release(self) -> None:
        """Keeps the connection for reuse if the response was read to its end; otherwise closes it."""
        self._leave_rounds()
        is_read = self.is_whole and not self._received
        if is_read and self._may_be_kept and self._is_usable and self._owner.take_back(self):
            self._was_kept = True
            self._deadline.set(self._loop.time() + KEEP_ALIVE_S)
        else:
            self.abort()

    def abort(self) -> None:
        self._leave_rounds()
        self._owner.forget(self)
        self._deadline.clear()
        self._may_be_kept = False
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def _is_usable(self) -> bool:
        return self.is_open and self._failure is None

    @property
    def content_type(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def header(self, name: bytes) -> str:
        """Returns a header's value by its lower-case name; empty if missing."""
        for key, value in self.headers:
            if key == name:
                return value.decode("latin-1")
        return ""

    async def _write(self, transport: asyncio.Transport, head: bytes, body: memoryview) -> None:
        transport.write(head)
        for start in range(0, len(body), BODY_SLICE_BYTES):
            transport.write(body[start : start + BODY_SLICE_BYTES])
            while self._is_writing_paused and not self.status:
                await self._change()
            if self.status:
                # The server responded without reading the rest of the body.
                return
        self._is_written = True

    def _change(self) -> "asyncio.Future[None]":
        """Returns a future of the next change, for one waiter at a time, and arms the deadline."""
        if self._failure is not None:
            raise Interrupted(self._failure)
        self._arm_deadline()
        self._waiter = waiter = self._loop.create_future()
        return waiter

    def _arm_deadline(self) -> None:
        now_s, answer_by_s = self._loop.time(), self._answer_by_s
        if answer_by_s is None:
            self._deadline.set(now_s + self._silence_s)
        elif answer_by_s > now_s:
            self._deadline.set(answer_by_s)
        elif answer_by_s == self._last_read_by_s:
            # While bytes keep arriving, each clears the deadline before it can fire.
            self._fail("did not answer in time")
            raise Interrupted("did not answer in time")
        else:
            self._read_once_more()

    def _read_once_more(self) -> None:
        """Sets the deadline of the last read. Bytes do not postpone that of a whole response any further."""
        self._last_read_by_s = last_read_by_s = self._loop.time() + LAST_READ_S
        if self._answer_by_s is not None:
            self._answer_by_s = last_read_by_s
        self._deadline.set(last_read_by_s)
        # The transport reads at once, rather than in the next round.
        self._leave_rounds()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.is_whole or self._failure is not None:
            # Unsolicited or unparseable data.
            self.abort()
            return
        body_bytes = self.body_bytes
        if self._is_between_chunks and self.consume_read is not None and self._waiter is not None:
            try:
                taken_bytes = 0 if self._waiter.done() else self.consume_read(data)
            except Exception:
                # It is parsed instead, and what fails then is raised in the reader's task.
                taken_bytes = 0
            if taken_bytes:
                # The parser, which is between two chunks, need not see whole ones.
                self._read_bytes += len(data)
                self.body_bytes = body_bytes + taken_bytes
                self._bytes_without_body = 0
                if self._answer_by_s is None:
                    self._deadline.at_s = self._loop.time() + self._silence_s
                return
        if not self._parse(data, body_bytes):
            return
        # The last chunk may also be followed by the incomplete size of the next.
        self._is_between_chunks = self._chunk_position.is_between and data.endswith(b"\r\n")
        if self.status and not self._is_consumed():
            self._read_or_pause()
            self._wake()

    def _parse(self, data: bytes, body_bytes: int) -> bool:
        """Feeds the parser, after a body of so many bytes; returns False if that failed, and so did the connection."""
        try:
            if self.status:
                self._parser.feed_data(data)
            else:
                self._feed_head(data)
            self._read_bytes += len(data)
            if self.body_bytes == body_bytes or self._read_bytes > LARGEST_FRAMING_BYTES:
                self._check_framing(len(data), has_body=self.body_bytes > body_bytes)
            else:
                self._bytes_without_body = 0
        except (Refused, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # The parser wraps an exception from a callback in its own.
            refusal = error if isinstance(error, Refused) else error.__context__
            self._break(str(refusal) if isinstance(refusal, Refused) else "broke the connection")
            return False
        return True

    def _is_consumed(self) -> bool:
        """Passes what has arrived to the consumer; returns whether its reader may wait on."""
        waiter = self._waiter
        if self._consume is None or waiter is None or waiter.done():
            # Nobody waits: a cancelled reader takes nothing more.
            return False
        received = self._received
        if received:
            data = received[0] if len(received) == 1 else b"".join(received)
            received.clear()
            self._received_bytes = 0
            if not self._consume(data):
                self._consume = None
                return False
        if self.is_whole:
            return False
        if self._answer_by_s is None:
            # It is set already, and only moves on, for which no timer has to be touched.
            self._deadline.at_s = self._loop.time() + self._silence_s
        return True

    def _check_framing(self, read_bytes: int, *, has_body: bool) -> None:
        self._bytes_without_body = 0 if has_body else self._bytes_without_body + read_bytes
        check_framing(self._read_bytes, self.body_bytes, self._bytes_without_body)

    def _feed_head(self, data: bytes) -> None:
        """Feeds the parser while the head is incomplete, and enforces the limit on the head alone."""
        left_bytes = LARGEST_HEAD_BYTES - self._head_bytes
        head = data[:left_bytes]
        self._head_bytes += len(head)
        if head:
            self._parser.feed_data(head)
        if len(data) > left_bytes:
            if not self.status:
                raise Refused("sent an endless head")
            self._parser.feed_data(data[left_bytes:])

    def eof_received(self) -> bool:
        self._leave_rounds()
        if self.status and not self.is_whole and not self._has_length():
            # The end of the connection ends the response.
            self.is_whole = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.forget(self)
        self._leave_rounds()
        self._transport = self._round_reader = None
        # Breaks the reference cycles, so that the connection is freed without the garbage collector.
        self._deadline.close()
        del self._parser
        if not self.is_whole:
            self.was_closed_unheard = self._is_unheard()
            self._fail("broke the connection")
        self._wake()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._wake()

    def _on_deadline(self) -> None:
        if self.is_whole:
            self.abort()
        elif self._deadline.at_s == self._last_read_by_s:
            self._fail("did not answer in time")
        else:
            self._read_once_more()

    def _read_or_pause(self) -> None:
        is_paused = self._received_bytes > READ_AHEAD_BYTES
        if is_paused is self._is_reading_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_reading_paused = is_paused
        self._leave_rounds()
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _is_unheard(self) -> bool:
        is_unanswered = not self.status and not self._head_bytes and self._failure is None
        is_soon = self._loop.time() - self._asked_at_s <= CLOSED_UNHEARD_WITHIN_S
        return self._was_kept and is_unanswered and is_soon

    def _has_length(self) -> bool:
        return any(key in (b"content-length", b"transfer-encoding") for key, _ in self.headers)

    def _break(self, what: str) -> None:
        """Fails and closes the connection. A response that is already complete stays valid."""
        if not self.is_whole:
            self._failure = self._failure or what
        self.abort()
        self._wake()

    def _fail(self, what: str) -> None:
        self._failure = self._failure or what
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            self._deadline.clear()
            if not waiter.done():
                waiter.set_result(None)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self.is_whole:
            raise Refused("sent a second answer to one question")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            # Trailers are ignored.
            return
        if len(self.headers) >= MOST_HEADERS:
            raise Refused("sent an endless head")
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if not self._parser.get_http_version().startswith("1."):
            raise Refused("broke the connection")
        encodings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if encodings and encodings != [b"chunked"]:
            # Other transfer encodings were not requested and are not supported.
            raise Refused("broke the connection")
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        else:
            # An interim response: the final one follows.
            self.headers.clear()

    def on_body(self, body: bytes) -> None:
        body_bytes = len(body)
        self._received.append(body)
        self._received_bytes += body_bytes
        self.body_bytes += body_bytes

    def on_message_complete(self) -> None:
        if self.status and not self.is_whole:
            self.is_whole = True
            self._may_be_kept = self._is_written and self._parser.should_keep_alive()
