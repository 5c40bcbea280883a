"""One HTTP/1.1 client connection: one request at a time, with a streamed response.

Only what is needed: no redirects, no proxies, no cookies, no compression.
"""

import asyncio
import select
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from services.chassis.http_client.failures import Interrupted, InvalidResponse, TimedOut, TlsFailed
from services.chassis.http_client.response import ResponseReader
from services.chassis.timing.deadlines import Deadline

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
# How servers say that they close an idle connection, which is no answer.
IDLE_FAREWELLS = (b"HTTP/1.1 408", b"HTTP/1.0 408")
# A server that was about to close an idle connection has done so within this time; a later close is deliberate.
CLOSED_UNHEARD_WITHIN_S = 1.0


class Owner(Protocol):
    def take_back(self, connection: "HttpConnection") -> bool:
        """Returns whether the idle connection is kept for reuse."""
        ...

    def forget(self, connection: "HttpConnection") -> None:
        """Removes a closed connection."""
        ...

    def distrust(self) -> None:
        """Keeps no connection for some time: the server has sent what nobody had asked for."""
        ...


class HttpConnection(asyncio.Protocol):
    """A pooled connection: acquire it, post one request, read any part of the response, release it."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._deadline = Deadline(self._loop, self._on_deadline)
        self.response = self._new_response()
        self._transport: asyncio.Transport | None = None
        # The single waiter for any state change.
        self._waiter: asyncio.Future[None] | None = None
        # Makes the error that says why the connection failed.
        self._failure: Callable[[], Interrupted] | None = None
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._is_written = True
        # Deadline of the whole response, or the idle timeout.
        self._answer_by_s: float | None = None
        self._silence_s = 0.0
        # The end of the last read after a deadline.
        self._last_read_by_s: float | None = None
        # It was kept alive after an earlier response, as far as we know by the server too.
        self._was_kept = False
        self._asked_at_s = 0.0
        # Tells if anything has arrived, once the connection is reused.
        self._arrivals: select.poll | None = None
        # Closed by the server without a byte of a response, soon after the request.
        self.was_closed_unheard = False

    def _new_response(self) -> ResponseReader:
        return ResponseReader()

    async def post(self, head: bytes, body: bytes, on_sent: Callable[[], None] | None = None) -> None:
        """Sends a request and waits for the response head. `on_sent` is called once the whole request is written; the
        body is not kept any longer."""
        transport = self._transport
        self._deadline.clear()
        if transport is None or not self._is_usable:
            raise Interrupted
        self.response.begin(is_asked=True)
        self._asked_at_s = self._loop.time()
        self._is_written = len(body) <= LARGEST_BODY_AT_ONCE_BYTES
        if self._is_written:
            transport.write(head + body)
        else:
            await self._write(transport, head, memoryview(body))
        del body
        if on_sent is not None and self._is_written:
            on_sent()
        while not self.response.status:
            await self._change()

    async def read(self) -> bytes:
        """Returns the bytes received so far; empty at the end."""
        response = self.response
        while not response.received and not response.is_whole:
            await self._change()
        received = response.take()
        self._read_or_pause()
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
        self._stop_reading_instead()
        may_be_kept = self.response.keeps_alive and self._is_written and self._is_usable
        if self.is_read and may_be_kept and self._owner.take_back(self):
            self._was_kept = True
            self._deadline.set(self._loop.time() + KEEP_ALIVE_S)
        else:
            self.abort()

    def abort(self) -> None:
        self._stop_reading_instead()
        self._owner.forget(self)
        self._deadline.clear()
        if self._transport is not None:
            self._transport.abort()

    def may_be_reused(self) -> bool:
        """Returns whether an idle connection may carry the next request: not if anything has arrived that the event
        loop has not read yet. Arrived before the request, it cannot be the answer. It is read, and the connection
        closed."""
        if not self.is_open:
            return False
        if self._arrivals is None:
            self._arrivals = select.poll()
            socket = cast(asyncio.Transport, self._transport).get_extra_info("socket")
            self._arrivals.register(socket.fileno(), select.POLLIN)
        if self._arrivals.poll(0):
            self._deadline.set(self._loop.time() + LAST_READ_S)
            return False
        return True

    @property
    def server_names(self) -> list[str]:
        """Returns the names in the server's certificate; none without TLS."""
        certificate = self._transport.get_extra_info("peercert") if self._transport is not None else None
        return [name for kind, name in (certificate or {}).get("subjectAltName", ()) if kind == "DNS"]

    @property
    def is_read(self) -> bool:
        """Returns whether the response was read to its end."""
        return self.response.is_whole and not self.response.received

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def _is_usable(self) -> bool:
        return self.is_open and self._failure is None

    async def _write(self, transport: asyncio.Transport, head: bytes, body: memoryview) -> None:
        transport.write(head)
        for start in range(0, len(body), BODY_SLICE_BYTES):
            transport.write(body[start : start + BODY_SLICE_BYTES])
            while self._is_writing_paused and not self.response.status:
                await self._change()
            if self.response.status:
                # The server responded without reading the rest of the body.
                return
        self._is_written = True

    def _change(self) -> "asyncio.Future[None]":
        """Returns a future of the next change, for one waiter at a time, and arms the deadline."""
        if self._failure is not None:
            raise self._failure()
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
            self._fail(TimedOut)
            raise TimedOut
        else:
            self._read_once_more()

    def _read_once_more(self) -> None:
        """Sets the deadline of the last read. Bytes do not postpone that of a whole response any further."""
        self._last_read_by_s = last_read_by_s = self._loop.time() + LAST_READ_S
        if self._answer_by_s is not None:
            self._answer_by_s = last_read_by_s
        self._deadline.set(last_read_by_s)
        self._stop_reading_instead()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        response = self.response
        if response.is_whole or self._failure is not None:
            # Unsolicited or unparseable data.
            if response.is_whole and data.strip() and not data.startswith(IDLE_FAREWELLS):
                self._owner.distrust()
            self.abort()
            return
        try:
            response.feed(data)
        except InvalidResponse as error:
            what = str(error)
            # A response that is already complete stays valid.
            if self.response.is_whole:
                self._owner.distrust()
            else:
                self._failure = lambda: InvalidResponse(what)
            self.abort()
            self._wake()
            return
        if response.status and not self._is_taken():
            self._read_or_pause()
            self._wake()

    def _is_taken(self) -> bool:
        """Returns whether the waiter need not be woken for what has arrived."""
        return False

    def _stop_reading_instead(self) -> None:
        """Lets the transport read, where a subclass reads its socket instead."""

    def eof_received(self) -> bool:
        self._stop_reading_instead()
        self.response.end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.forget(self)
        self._stop_reading_instead()
        self._transport = None
        # Breaks the reference cycles, so that the connection is freed without the garbage collector.
        self._deadline.close()
        self.response.close()
        if not self.response.is_whole:
            self.was_closed_unheard = self._is_unheard()
            self._fail(TlsFailed if isinstance(exc, ssl.SSLError) else Interrupted)
        self._wake()

    def pause_writing(self) -> None:
        self._is_writing_paused = True

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._wake()

    def _on_deadline(self) -> None:
        if self.response.is_whole:
            self.abort()
        elif self._deadline.at_s == self._last_read_by_s:
            self._fail(TimedOut)
        else:
            self._read_once_more()

    def _read_or_pause(self) -> None:
        is_paused = self.response.received_bytes > READ_AHEAD_BYTES
        if is_paused is self._is_reading_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_reading_paused = is_paused
        self._stop_reading_instead()
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _is_unheard(self) -> bool:
        is_unanswered = not self.response.status and not self.response.head_bytes and self._failure is None
        is_soon = self._loop.time() - self._asked_at_s <= CLOSED_UNHEARD_WITHIN_S
        return self._was_kept and is_unanswered and is_soon

    def _fail(self, failure: Callable[[], Interrupted]) -> None:
        self._failure = self._failure or failure
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            self._deadline.clear()
            if not waiter.done():
                waiter.set_result(None)
