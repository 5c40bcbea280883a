"""Calls a provider's server over HTTP, and reads its answer, whole or as server-sent events.

The format is each provider's own: it passes a `ProviderAnswer` that parses it, and `ErrorPatterns` for its errors.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from services.chassis.http_client.connection import HttpConnection
from services.chassis.http_client.failures import ConnectionRefused, Interrupted
from services.chassis.http_client.origin import Origin, RequestHead
from services.router.providers.base import (
    LARGEST_PIECE_CHARACTERS,
    Piece,
    PieceTaker,
    ProviderAnswer,
    ProviderCall,
    ProviderError,
    ServerRefused,
    Timeouts,
    UnreadableAnswer,
)
from services.router.providers.errors.classify import TELLING_STATUSES, ErrorPatterns, read_failure
from services.router.providers.errors.error_body import LARGEST_ERROR_BODY_BYTES
from services.router.providers.http.answer_connection import AnswerConnection, AnswerConnections
from services.router.providers.http.sse import LONGEST_HALVED_BYTES, EventReader, EventTooLong, join_halves
from services.router.providers.translation.conversion import SHORT_BYTES, has_too_many_objects

# A memory budget for partially received answers, shared by all answers of one server.
#
# An answer draws on it by what it has received beyond what an ordinary one needs. So concurrent large answers cannot
# exhaust the process's memory, and a small answer never fails for lack of budget.

BUDGET_BYTES: Final = 64 * 1024 * 1024
# Not charged to the budget, per answer.
FREE_BYTES: Final = 256 * 1024


class BufferBudget:
    def __init__(self, most_bytes: int = BUDGET_BYTES) -> None:
        self.left_bytes = most_bytes


class AnswerBuffer:
    """The buffer space of one answer."""

    __slots__ = ("_budget", "taken_bytes")

    def __init__(self, budget: BufferBudget) -> None:
        self._budget = budget
        self.taken_bytes = 0

    def reserve(self, held_bytes: int) -> None:
        """Adjusts the reservation to the bytes now held in total."""
        if held_bytes <= FREE_BYTES and not self.taken_bytes:
            return
        more_bytes = max(0, held_bytes - FREE_BYTES) - self.taken_bytes
        if more_bytes > self._budget.left_bytes:
            raise ProviderError("sent more than there is room for")
        self._budget.left_bytes -= more_bytes
        self.taken_bytes += more_bytes

    def release(self) -> None:
        self._budget.left_bytes += self.taken_bytes
        self.taken_bytes = 0


# Limit on an answer that is not streamed: parsing it blocks the event loop. A million tokens fit, however they are
# escaped.
LARGEST_ANSWER_BYTES = 8 * 1024 * 1024
# Limit on a stream, with everything that servers repeat in each event.
LARGEST_STREAM_BYTES = 1024 * 1024 * 1024
# Trailing bytes that are read after the answer so that the connection can be reused.
MOST_BYTES_AFTER_DONE = 64 * 1024
# Events received together are passed on together, up to this many: each grows on its way to the client.
MOST_EVENTS_A_PIECE = 128
# Timeouts for the usage that follows the answer, and for the end of the response after that.
AFTER_ANSWER_S = 5.0
AFTER_DONE_S = 1.0
# Timeout for an error's body: the status is known and mostly sufficient.
AFTER_FAILURE_S = 2.0


@dataclass(slots=True, repr=False)
class ProviderRequest:
    path: str
    # Writes the body, whenever it is sent: it is as long as the prompt, and let go once it is sent.
    write_body: Callable[[], Awaitable[bytes]]
    # Whether streaming is requested.
    stream: bool
    # Trace context; empty: none is sent.
    traceparent: str = ""
    on_sent: Callable[[], None] | None = None
    taker: PieceTaker | None = None

    @classmethod
    def of(
        cls, call: ProviderCall, path: str, write_body: Callable[[], Awaitable[bytes]], *, stream: bool | None = None
    ) -> "ProviderRequest":
        """Returns the request of a call; `stream` if it is not streamed as asked for."""
        streams = call.stream if stream is None else stream
        return cls(path, write_body, streams, call.traceparent, call.on_sent, call.taker)


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
        """`keep` enables reuse of connections."""
        self._timeouts = timeouts
        self._error_patterns = error_patterns
        self._connections = AnswerConnections(origin, timeouts.connect_s, keep=keep)
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
        try:
            await self._connections.warm()
        except Interrupted as error:
            raise _failure_of(error) from None

    async def send(self, question: ProviderRequest, answer: ProviderAnswer) -> AsyncGenerator[Piece, None]:
        """Yields the pieces of the answer. Closing the generator closes the connection."""
        over_at_s = self._deadlines.now_s() + self._timeouts.total_s
        try:
            connection = await self._post(question)
        except Interrupted as error:
            raise _failure_of(error) from None
        streams, taker = question.stream, question.taker
        # It refers to the prompt, which is not needed any more.
        del question
        buffer = AnswerBuffer(self._budget)
        try:
            if connection.response.status != 200:
                raise await self._read_failure(connection)
            if not _is_stream(connection, streams=streams):
                await _read_whole(connection, answer, buffer)
                yield answer.pieces.popleft()
                while answer.pieces:
                    await asyncio.sleep(0)
                    yield answer.pieces.popleft()
                return
            stream = Stream(connection, self._timeouts.idle_s, answer, buffer, taker)
            # Comments or pings restart the idle timeout, so a total timeout is needed too. After the first piece the
            # caller enforces it, since a slow client also takes time.
            left_s = over_at_s - self._deadlines.now_s()
            with self._deadlines.limit(left_s, ProviderError("took too long to answer")):
                piece = await stream.first_piece()
            yield piece
            while not piece.last:
                piece = await stream.next_piece()
                yield piece
            await stream.read_to_end()
        except Interrupted as error:
            raise _failure_of(error) from None
        finally:
            buffer.release()
            # Reused if nothing is left to read.
            connection.release()

    async def _post(self, question: ProviderRequest) -> AnswerConnection:
        """Sends the request and returns the connection once the response head has arrived."""
        connection = await self._post_on(self._connections.acquire, question)
        if connection.was_closed_unheard:
            # A server may close an idle connection just as it is reused. A retry could run the request twice; but a
            # server that has read it does not close at once without a byte. curl and browsers retry in this case too,
            # and only in this: not after a timeout, and not on a new connection.
            connection = await self._post_on(self._connections.connect, question)
        return connection

    async def _post_on(
        self, open_connection: Callable[[], Awaitable[HttpConnection]], question: ProviderRequest
    ) -> AnswerConnection:
        """Returns the connection without a response if it was closed unheard."""
        body = await question.write_body()
        connection = cast(AnswerConnection, await open_connection())
        try:
            connection.answer_within(self._patience_s(question))
            head = self._head.for_body(question.path, body, question.traceparent)
            posting = connection.post(head, body, question.on_sent)
            # Kept by the connection alone, until it is sent.
            del body
            await posting
        except BaseException as error:
            connection.release()
            if not isinstance(error, Interrupted) or not connection.was_closed_unheard:
                raise
        return connection

    def _patience_s(self, question: ProviderRequest) -> float:
        """Returns the timeout for the first byte of a stream, or for a whole answer."""
        timeouts = self._timeouts
        return min(timeouts.first_byte_s, timeouts.total_s) if question.stream else timeouts.whole_s

    async def _read_failure(self, connection: HttpConnection) -> ProviderError:
        said = b""
        if connection.response.status in TELLING_STATUSES:
            connection.answer_within(AFTER_FAILURE_S)
            # A partial body is used too.
            with suppress(Interrupted):
                while len(said) < LARGEST_ERROR_BODY_BYTES and (received := await connection.read()):
                    said += received
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in connection.response.headers}
        return read_failure(connection.response.status, headers, said[:LARGEST_ERROR_BODY_BYTES], self._error_patterns)


class Stream:
    """Reads the events of one response; the events of one read form one piece.

    While `next_piece` waits, the taker gets what arrives, in the callback of the read. It is asked only while nothing
    else is unread, so that the order is kept."""

    def __init__(
        self,
        connection: AnswerConnection,
        idle_s: float,
        answer: ProviderAnswer,
        buffer: AnswerBuffer,
        taker: PieceTaker | None = None,
    ) -> None:
        self._connection = connection
        self._idle_s = idle_s
        self._events = EventReader()
        self._answer = answer
        self._place = buffer
        self._taker = taker or PieceTaker()
        self._taker.pack_read = answer.read_packer()
        # Takes a read that need not be parsed; None inside an event, or once the answer has finished.
        self.take_read: Callable[[bytes], int] | None = None
        self._failed: Exception | None = None
        # The first half of a split surrogate pair, until the second arrives.
        self._half = b""

    async def first_piece(self) -> Piece:
        """Returns the first piece with content: before that, a failure can still fall back to another model."""
        piece = await self.next_piece()
        self.limit_silence()
        while piece.is_empty and not piece.last:
            piece = await self.next_piece()
        return piece

    async def next_piece(self) -> Piece:
        pieces = self._answer.pieces
        if pieces:
            # One read brought several pieces: yield to the event loop between them.
            await asyncio.sleep(0)
        while not pieces:
            if self._failed is not None:
                raise self._failed
            if self._taker.take is not None:
                self._connection.read_in_rounds()
            try:
                self._offer_reads()
                received = await self._connection.read_by(self)
            except Interrupted:
                if not self._answer.is_finished:
                    raise
                # The answer was complete; only its usage is missing.
                received = b""
            if not pieces and self._failed is None:
                self._receive(received)
        return pieces.popleft()

    def take_body(self, received: bytes) -> bool:
        """Reads what has arrived while `next_piece` waits; returns False if that has to go on. Only the first piece is
        taken here: if one read brought several, others have their turn between them."""
        self._receive(received)
        pieces = self._answer.pieces
        if pieces and self._taker.take is not None:
            try:
                if self._taker.take(pieces[0]):
                    pieces.popleft()
            except Exception as error:
                # Raised in the waiting task: here it would reach nobody but the event loop.
                pieces.clear()
                self._failed = error
        self._offer_reads()
        return not pieces and self._failed is None

    def _offer_reads(self) -> None:
        has_rest = self._events.begun or self._events.data or self._half or self._answer.is_finished
        self.take_read = None if has_rest else self._taker.take_read

    def _receive(self, received: bytes) -> None:
        """Splits received bytes into pieces; empty ones end the answer."""
        pieces = self._answer.pieces
        try:
            if self._connection.response.body_bytes > LARGEST_STREAM_BYTES:
                raise ProviderError("sent an endless answer")
            events = self._events.feed(received) if received else self._events.finish()
            if self._place.taken_bytes or not received.endswith(b"\n\n"):
                self._place.reserve(self._events.held_bytes)
            if events:
                self._read(events)
            if not received and not self._answer.is_over:
                self._answer.close()
        except (ProviderError, EventTooLong) as error:
            # The pieces before the error are passed on first.
            self._failed = error if isinstance(error, ProviderError) else ProviderError("sent an endless event")
            if pieces and pieces[-1].is_empty:
                pieces.pop()

    def limit_silence(self) -> None:
        """Sets the idle timeout, which restarts with every byte."""
        limit_s = min(self._idle_s, AFTER_ANSWER_S) if self._answer.is_finished else self._idle_s
        self._connection.limit_silence(limit_s)

    async def read_to_end(self) -> None:
        """Reads the response to its end, so that the connection can be reused."""
        self._connection.answer_within(AFTER_DONE_S)
        left_bytes = MOST_BYTES_AFTER_DONE
        with suppress(Interrupted):
            while left_bytes > 0 and (received := await self._connection.read()):
                left_bytes -= len(received)

    def _read(self, events: list[bytes]) -> None:
        answer = self._answer
        for begin in range(0, len(events), MOST_EVENTS_A_PIECE):
            answer.begin_piece()
            end = min(begin + MOST_EVENTS_A_PIECE, len(events))
            at = begin
            while at < end:
                if not self._half and (texts := answer.read_texts(events, at, end)):
                    at += texts
                    continue
                self._read_event(events[at])
                at += 1
                if answer.is_over:
                    answer.close()
                    return
        if answer.is_finished:
            self.limit_silence()

    def _read_event(self, event: bytes) -> None:
        if len(event) >= SHORT_BYTES:
            _refuse_too_many_objects(event)
        if event:
            try:
                self._answer.read_event(event)
            except UnreadableAnswer:
                if not self._read_halved(event):
                    raise

    def _read_halved(self, event: bytes) -> bool:
        """Reads an unreadable event without the half of a surrogate pair; returns False if it has none."""
        if len(event) > LONGEST_HALVED_BYTES:
            return False
        joined, self._half = join_halves(event, self._half)
        if joined == event:
            return False
        self._answer.read_event(joined)
        return True


def _is_stream(connection: HttpConnection, *, streams: bool) -> bool:
    """Tells if the response is a stream, by its content type: some servers ignore the `stream` parameter."""
    content_type = connection.response.header(b"content-type").partition(";")[0].strip().lower()
    if streams:
        return content_type != "application/json"
    return content_type == "text/event-stream"


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


def _failure_of(error: Interrupted) -> ProviderError:
    return (ServerRefused if isinstance(error, ConnectionRefused) else ProviderError)(str(error))


def _refuse_too_many_objects(data: bytes) -> None:
    if has_too_many_objects(data):
        raise ProviderError("sent an answer of too many parts")
