"""HTTP/1.1 on one connection: one request at a time, and the answer as it comes.

Only what a provider needs: no redirects, no proxies, no cookies, no compression.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol, cast

import httptools

from services.chassis.timing.deadlines import Deadlines
from services.router.providers.base import ProviderError
from services.router.providers.http.read_pacing import ReadPacer

# Written at once; of a larger body slice by slice, each when there is room for it.
LARGEST_BODY_AT_ONCE_BYTES = 256 * 1024
BODY_SLICE_BYTES = 64 * 1024
# Of an answer, with all interim ones before it.
LARGEST_HEAD_BYTES = 64 * 1024
MOST_HEADERS = 256
# Of what is sent around the body, after the head: sizes and extensions of chunks, and trailers. So much of it at a
# time, and in all so much for each byte of the body, as if every chunk had one byte and a long size.
LARGEST_FRAMING_BYTES = 2 * LARGEST_HEAD_BYTES
MOST_FRAMING_PER_BODY_BYTE = 16
# How much of an answer may wait here for a client that does not read.
READ_AHEAD_BYTES = 16 * 1024
# Many servers close a connection that was idle for 5 s. Below that, nobody writes to one that is being closed.
KEEP_ALIVE_S = 4.0
# A server that was about to close a kept connection has done so by then; one that closes later has thought about it.
CLOSED_UNHEARD_WITHIN_S = 1.0


class Interrupted(ProviderError):
    """The connection, and not what was said on it."""


class _Refused(Exception):
    """Raised inside of the parser, which reads no further."""


class ConnectionRefused(Interrupted):
    """Nobody takes it at the address: the server is not there, or so full that it takes no further one."""


class Owner(Protocol):
    def take_back(self, connection: "HttpConnection") -> bool:
        """Whether it keeps one that is free again."""
        ...

    def forget(self, connection: "HttpConnection") -> None:
        """It is closed."""
        ...


class HttpConnection(asyncio.Protocol):
    """Whoever takes it posts one request, reads as much of the answer as he likes, and lets it go."""

    def __init__(self, owner: Owner, deadlines: Deadlines, read_pacer: ReadPacer) -> None:
        self._owner = owner
        self._read_pacer = read_pacer
        self._loop = asyncio.get_running_loop()
        self._deadline = deadlines.new(self._on_deadline)
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        # Who waits for anything to change; there is one at most.
        self._waiter: asyncio.Future[None] | None = None
        # What it did in place of answering.
        self._failure: str | None = None
        self._is_reading_paused = False
        self._is_writing_paused = False
        # When the answer must be there that is waited for, or how long it may be silent.
        self._answer_by_s: float | None = None
        self._silence_s = 0.0
        # A piece was handed on a moment ago: what comes now is left to the kernel to gather.
        self._is_resting = False
        # It was kept for the next one to use, and by the server too, as far as we know.
        self._was_kept = False
        self._asked_at_s = 0.0
        # It was closed as if nobody had asked anything.
        self.was_closed_unheard = False
        self._begin(is_asked=False)

    def _begin(self, *, is_asked: bool) -> None:
        # Of the answer: 0 until its head has come.
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._received: list[bytes] = []
        self._received_bytes = 0
        # Since it was asked, of which so much was body; and since the last of that.
        self._read_bytes = 0
        self._body_bytes = 0
        self._bytes_without_body = 0
        self._is_written = False
        self._may_be_kept = not is_asked
        # Nothing more of the answer will come.
        self.is_whole = not is_asked

    # What is done with it.

    async def post(self, head: bytes, body: bytes, on_sent: Callable[[], None] | None = None) -> None:
        """Ask, and wait for the head of the answer. `on_sent` is called once all of the question is under way."""
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
        if on_sent is not None and self._is_written:
            on_sent()
        while not self.status:
            await self._change()

    async def read(self) -> bytes:
        """What has come; nothing at the end."""
        while not self._received:
            if self.is_whole:
                return b""
            await self._change()
        received = self._received[0] if len(self._received) == 1 else b"".join(self._received)
        self._received.clear()
        self._received_bytes = 0
        if self._answer_by_s is None and not self.is_whole and not self._is_resting:
            self._is_resting = self._read_pacer.pause(self._end_rest)
        self._read_or_pause()
        return received

    def answer_within(self, limit_s: float) -> None:
        """From now on: whatever is waited for must be there until then."""
        self._answer_by_s = self._loop.time() + limit_s
        self._end_rest()

    def limit_silence(self, silence_s: float) -> None:
        """In place of that: every byte that comes starts the time anew. Of such an answer, pieces leave in tempo."""
        self._answer_by_s = None
        self._silence_s = silence_s

    def release(self) -> None:
        """Kept for the next one if the answer was read to its end; else closed at once."""
        is_read = self.is_whole and not self._received
        if is_read and self._may_be_kept and self._is_usable and self._owner.take_back(self):
            self._was_kept = True
            self._deadline.set(self._loop.time() + KEEP_ALIVE_S)
        else:
            self.abort()

    def abort(self) -> None:
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
        """By its name in small letters; empty where there is none."""
        return next((value.decode("latin-1") for value in self._values(name)), "")

    def _values(self, name: bytes) -> Iterator[bytes]:
        return (value for key, value in self.headers if key.lower() == name)

    async def _write(self, transport: asyncio.Transport, head: bytes, body: memoryview) -> None:
        transport.write(head)
        for start in range(0, len(body), BODY_SLICE_BYTES):
            transport.write(body[start : start + BODY_SLICE_BYTES])
            while self._is_writing_paused and not self.status:
                await self._change()
            if self.status:
                # It has made up its mind without the rest of it.
                return
        self._is_written = True

    def _change(self) -> "asyncio.Future[None]":
        """To be waited for by one at a time, while the deadline runs. Whoever is cancelled meanwhile lets it go."""
        if self._failure is not None:
            raise Interrupted(self._failure)
        answer_by_s = self._answer_by_s
        self._deadline.set(self._loop.time() + self._silence_s if answer_by_s is None else answer_by_s)
        self._waiter = waiter = self._loop.create_future()
        return waiter

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.is_whole or self._failure is not None:
            # Nobody has asked for it, or nobody understands it.
            self.abort()
            return
        try:
            self._feed(data)
        except (_Refused, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            # What is raised in what the parser calls, it hides behind an error of its own.
            refusal = error if isinstance(error, _Refused) else error.__context__
            self._break(str(refusal) if isinstance(refusal, _Refused) else "broke the connection")
            return
        if self.status:
            self._read_or_pause()
            self._wake()

    def _feed(self, data: bytes) -> None:
        body_bytes = self._body_bytes
        if self.status:
            self._parser.feed_data(data)
        else:
            self._feed_head(data)
        self._read_bytes += len(data)
        self._bytes_without_body = 0 if self._body_bytes > body_bytes else self._bytes_without_body + len(data)
        framing_bytes = self._read_bytes - self._body_bytes
        most_bytes = LARGEST_FRAMING_BYTES + MOST_FRAMING_PER_BODY_BYTE * self._body_bytes
        if self._bytes_without_body > LARGEST_FRAMING_BYTES or framing_bytes > most_bytes:
            raise _Refused("sent too much around its answer")

    def _feed_head(self, data: bytes) -> None:
        """The head must end within what is left for it; what follows it need not."""
        left_bytes = LARGEST_HEAD_BYTES - self._head_bytes
        head = data[:left_bytes]
        self._head_bytes += len(head)
        if head:
            self._parser.feed_data(head)
        if len(data) > left_bytes:
            if not self.status:
                raise _Refused("sent an endless head")
            self._parser.feed_data(data[left_bytes:])

    def eof_received(self) -> bool:
        if self.status and not self.is_whole and not self._has_length():
            # The end of the connection is the end of the answer.
            self.is_whole = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.forget(self)
        self._transport = None
        # Both know this connection, which would else wait for the collector of garbage.
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
        else:
            self._fail("did not answer in time")

    def _end_rest(self) -> None:
        self._is_resting = False
        self._read_or_pause()

    def _read_or_pause(self) -> None:
        is_paused = self._is_resting or self._received_bytes > READ_AHEAD_BYTES
        if is_paused is self._is_reading_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_reading_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _is_unheard(self) -> bool:
        is_unanswered = not self.status and not self._head_bytes and self._failure is None
        is_soon = self._loop.time() - self._asked_at_s <= CLOSED_UNHEARD_WITHIN_S
        return self._was_kept and is_unanswered and is_soon

    def _has_length(self) -> bool:
        return any(key.lower() in (b"content-length", b"transfer-encoding") for key, _ in self.headers)

    def _break(self, what: str) -> None:
        """Nothing more is read. An answer that was whole before it stays so."""
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

    # What the parser tells.

    def on_message_begin(self) -> None:
        if self.is_whole:
            raise _Refused("sent a second answer to one question")

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.status:
            # A trailer, which says nothing about an answer to a chat.
            return
        if len(self.headers) >= MOST_HEADERS:
            raise _Refused("sent an endless head")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if not self._parser.get_http_version().startswith("1."):
            raise _Refused("broke the connection")
        encodings = [value.strip().lower() for value in self._values(b"transfer-encoding")]
        if encodings and encodings != [b"chunked"]:
            # Packed, or chunked twice: nobody has asked for that, and nobody would unpack it.
            raise _Refused("broke the connection")
        status = self._parser.get_status_code()
        if status >= 200:
            self.status = status
        else:
            # The answer itself is still to come.
            self.headers.clear()

    def on_body(self, body: bytes) -> None:
        self._received.append(body)
        self._received_bytes += len(body)
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        if self.status and not self.is_whole:
            self.is_whole = True
            self._may_be_kept = self._is_written and self._parser.should_keep_alive()
