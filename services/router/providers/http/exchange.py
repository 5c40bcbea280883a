"""Asks a provider's server over HTTP, and reads its answer in one piece or as events.

What the words mean is each provider's: it brings a `ProviderAnswer` that understands them, and `ErrorPatterns` for what
goes wrong.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from services.router.providers.answer import LARGEST_PIECE_CHARACTERS, ProviderAnswer, UnreadableAnswer
from services.router.providers.base import Piece, ProviderError, Timeouts
from services.router.providers.errors.classify import TELLING_STATUSES, ErrorPatterns, read_failure
from services.router.providers.errors.error_body import LARGEST_ERROR_BODY_BYTES
from services.router.providers.http.connection import HttpConnection, Interrupted
from services.router.providers.http.origin import Origin, RequestHead
from services.router.providers.http.pool import ConnectionPool
from services.router.providers.http.read_budget import AnswerBuffer, BufferBudget
from services.router.providers.http.split_surrogates import LONGEST_HALVED_BYTES, join_halves
from services.router.providers.http.sse import EventReader, EventTooLong
from services.router.providers.translation.json_objects import SHORT_BYTES, has_too_many_objects

# In one piece: it is read in one go, with everybody waiting. Of a million tokens there is room for each, however it is
# written.
LARGEST_ANSWER_BYTES = 8 * 1024 * 1024
# As events, with all that servers repeat in each of them.
LARGEST_STREAM_BYTES = 1024 * 1024 * 1024
# What may follow an answer that is over, and is read so that its connection can be used again.
MOST_BYTES_AFTER_DONE = 64 * 1024
# Events that come together are passed on together, but not in any number: each becomes larger on its way to the client.
MOST_EVENTS_A_PIECE = 128
# How long to wait for the usage that follows the answer, and for the end of the response after that.
AFTER_ANSWER_S = 5.0
AFTER_DONE_S = 1.0
# How long to wait for what a server says about an error: its status has come, and mostly says enough.
AFTER_FAILURE_S = 2.0


@dataclass(slots=True, repr=False)
class ProviderRequest:
    path: str
    body: bytes
    # Whether an answer as events is asked for.
    stream: bool
    # Empty: the server is not told of a trace.
    traceparent: str = ""
    on_sent: Callable[[], None] | None = None


class ProviderHttpClient:
    def __init__(
        self,
        origin: Origin,
        timeouts: Timeouts,
        error_patterns: ErrorPatterns,
        headers: Mapping[str, str],
        *,
        keep: bool = True,
    ) -> None:
        """`keep`: whether connections are used again."""
        self._timeouts = timeouts
        self._error_patterns = error_patterns
        self._connections = ConnectionPool(origin, timeouts.connect_s, keep=keep)
        self._deadlines = self._connections.deadlines
        self._budget = BufferBudget()
        self._head = RequestHead(
            origin,
            {
                "Accept": "*/*",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
                "User-Agent": "legato",
                **headers,
            },
        )

    async def aclose(self) -> None:
        await self._connections.aclose()

    async def warm(self) -> None:
        await self._connections.warm()

    async def send(self, question: ProviderRequest, answer: ProviderAnswer) -> AsyncGenerator[Piece, None]:
        """The pieces of the answer as they come. Closing the generator closes the connection."""
        over_at_s = self._deadlines.now_s() + self._timeouts.total_s
        connection = await self._post(question)
        buffer = AnswerBuffer(self._budget)
        try:
            if connection.status != 200:
                raise await self._read_failure(connection)
            if not _is_stream(connection, question):
                await _read_whole(connection, answer, buffer)
                yield answer.pieces.popleft()
                while answer.pieces:
                    await asyncio.sleep(0)
                    yield answer.pieces.popleft()
                return
            stream = Stream(connection, self._timeouts.idle_s, answer, buffer)
            # Whoever keeps the connection alive and says nothing is not silent, but is given up at last. From the first
            # piece on, whoever passes them on sees to that: a client that does not read takes its time too.
            left_s = over_at_s - self._deadlines.now_s()
            with self._deadlines.limit(left_s, ProviderError("took too long to answer")):
                piece = await stream.first_piece()
            yield piece
            while not piece.last:
                piece = await stream.next_piece()
                yield piece
            await stream.read_to_end()
        finally:
            buffer.release()
            # Where nothing is left to read, for the next question to use.
            connection.release()

    async def _post(self, question: ProviderRequest) -> HttpConnection:
        """The connection on which an answer begins."""
        connection = await self._connections.acquire()
        try:
            return await self._post_on(connection, question)
        except Interrupted:
            # A server may close a connection that it thinks nobody uses at the very moment we do. To post again could
            # have it serve twice; but whoever has read a question and works on it does not hang up at once without a
            # byte. So curl and browsers do this too, and only here: not when it was silent, nor on a new connection.
            if not connection.was_closed_unheard:
                raise
        return await self._post_on(await self._connections.connect(), question)

    async def _post_on(self, connection: HttpConnection, question: ProviderRequest) -> HttpConnection:
        try:
            connection.answer_within(self._patience_s(question))
            head = self._head.for_body(question.path, question.body, question.traceparent)
            await connection.post(head, question.body, question.on_sent)
        except BaseException:
            connection.release()
            raise
        return connection

    def _patience_s(self, question: ProviderRequest) -> float:
        """Until there is anything of a stream, or all of an answer in one piece."""
        timeouts = self._timeouts
        return min(timeouts.first_byte_s, timeouts.total_s) if question.stream else timeouts.whole_s

    async def _read_failure(self, connection: HttpConnection) -> ProviderError:
        said = b""
        if connection.status in TELLING_STATUSES:
            connection.answer_within(AFTER_FAILURE_S)
            # What was said so far counts, however it ends.
            with suppress(Interrupted):
                while len(said) < LARGEST_ERROR_BODY_BYTES and (received := await connection.read()):
                    said += received
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in connection.headers}
        return read_failure(connection.status, headers, said[:LARGEST_ERROR_BODY_BYTES], self._error_patterns)


class Stream:
    """Reads the events of one response: those of one read make one piece."""

    def __init__(self, connection: HttpConnection, idle_s: float, answer: ProviderAnswer, buffer: AnswerBuffer) -> None:
        self._connection = connection
        self._idle_s = idle_s
        self._events = EventReader()
        self._answer = answer
        self._place = buffer
        self._failed: ProviderError | None = None
        self._received_bytes = 0
        # Of a character that was cut in two, until the rest of it comes.
        self._half = b""

    async def first_piece(self) -> Piece:
        """The first that says anything: who has only opened his mouth may still fail, and then another can be asked."""
        piece = await self.next_piece()
        self.limit_silence()
        while piece.is_empty and not piece.last:
            piece = await self.next_piece()
        return piece

    async def next_piece(self) -> Piece:
        pieces = self._answer.pieces
        if pieces:
            # One read brought many: to pass each on takes a while.
            await asyncio.sleep(0)
        while not pieces:
            if self._failed is not None:
                raise self._failed
            try:
                received = await self._connection.read()
            except Interrupted:
                if not self._answer.is_finished:
                    raise
                # The answer was whole; only its usage is missing.
                received = b""
            self._received_bytes += len(received)
            try:
                if self._received_bytes > LARGEST_STREAM_BYTES:
                    raise ProviderError("sent an endless answer")
                events = self._events.feed(received) if received else self._events.finish()
                self._place.reserve(self._events.held_bytes)
                self._read(events)
                if not received and not self._answer.is_over:
                    self._answer.close()
            except (ProviderError, EventTooLong) as error:
                # What came before it is passed on first.
                self._failed = error if isinstance(error, ProviderError) else ProviderError("sent an endless event")
                if pieces and pieces[-1].is_empty:
                    pieces.pop()
        return pieces.popleft()

    def limit_silence(self) -> None:
        """From now on: every byte that comes starts the time anew."""
        limit_s = min(self._idle_s, AFTER_ANSWER_S) if self._answer.is_finished else self._idle_s
        self._connection.limit_silence(limit_s)

    async def read_to_end(self) -> None:
        """A connection can be used again only when its response was read to the end."""
        self._connection.answer_within(AFTER_DONE_S)
        left_bytes = MOST_BYTES_AFTER_DONE
        with suppress(Interrupted):
            while left_bytes > 0 and (received := await self._connection.read()):
                left_bytes -= len(received)

    def _read(self, events: list[bytes]) -> None:
        if not events:
            return
        self._answer.begin_piece()
        for number, event in enumerate(events):
            if number and number % MOST_EVENTS_A_PIECE == 0:
                self._answer.begin_piece()
            if event:
                self._read_event(event)
            if self._answer.is_over:
                self._answer.close()
                return
        if self._answer.is_finished:
            self.limit_silence()

    def _read_event(self, event: bytes) -> None:
        if len(event) >= SHORT_BYTES:
            _refuse_too_many_objects(event)
        try:
            self._answer.read_event(event)
        except UnreadableAnswer:
            if len(event) > LONGEST_HALVED_BYTES:
                raise
            joined, self._half = join_halves(event, self._half)
            if joined == event:
                raise
            self._answer.read_event(joined)


def _is_stream(connection: HttpConnection, question: ProviderRequest) -> bool:
    """Some servers answer the other way than they were asked; what they say about their answer counts."""
    if question.stream:
        return connection.content_type != "application/json"
    return connection.content_type == "text/event-stream"


async def _read_whole(connection: HttpConnection, answer: ProviderAnswer, buffer: AnswerBuffer) -> None:
    received = bytearray()
    while piece := await connection.read():
        received += piece
        if len(received) > LARGEST_ANSWER_BYTES:
            raise ProviderError("sent an endless answer")
        buffer.reserve(len(received))
    body = bytes(received)
    del received
    _refuse_too_many_objects(body)
    if len(body) > LARGEST_PIECE_CHARACTERS:
        await asyncio.sleep(0)
    answer.begin_piece()
    answer.read_whole(body)
    answer.close()


def _refuse_too_many_objects(data: bytes) -> None:
    if has_too_many_objects(data):
        raise ProviderError("sent an answer of too many parts")
