"""Reads the answer of one response as server-sent events."""

import asyncio
from contextlib import suppress

from services.chassis.http_client.failures import Interrupted
from services.router.compiled import read_leading_texts
from services.router.providers.answer import ProviderAnswer, UnreadableAnswer
from services.router.providers.base import Piece, PieceSink, ProviderError
from services.router.providers.http.answer_buffer import AnswerBuffer
from services.router.providers.http.answer_connection import AnswerConnection
from services.router.providers.http.aws_events import AwsEventReader
from services.router.providers.http.object_limit import SHORT_BYTES, check_objects
from services.router.providers.http.sse import EventReader, EventTooLong
from services.router.providers.http.surrogate_halves import LONGEST_HALVED_BYTES, join_halves

# Limit on a stream, with everything that servers repeat in each event.
LARGEST_STREAM_BYTES = 1024 * 1024 * 1024
# Trailing bytes that are read after the answer so that the connection can be reused.
MOST_BYTES_AFTER_DONE = 64 * 1024
# Events received together are passed on together, up to this many: each grows on its way to the client.
MOST_EVENTS_A_PIECE = 128
# Timeouts for the usage that follows the answer, and for the end of the response after that.
AFTER_ANSWER_S = 5.0
AFTER_DONE_S = 1.0


class Stream:
    """Reads the events of one response; the events of one read form one piece.

    There are two tracks. On the awaited one, `next_piece` returns a piece to the task of the answer. On the immediate
    one, while that task waits, the sink is offered what arrives, in the callback of the read: unparsed, and else as a
    piece. It is offered only while nothing else is unread, so that the order is kept."""

    def __init__(
        self,
        connection: AnswerConnection,
        idle_s: float,
        answer: ProviderAnswer,
        buffer: AnswerBuffer,
        sink: PieceSink | None = None,
        events: AwsEventReader | None = None,
    ) -> None:
        """`sink` is offered nothing before the first piece, and nothing at all if it is None. `events` reads another
        framing than that of server-sent events."""
        self._connection = connection
        self._idle_s = idle_s
        self._events: EventReader | AwsEventReader = EventReader() if events is None else events
        self._answer = answer
        self._buffer = buffer
        self._sink = sink
        self._has_begun = False
        # The sink, if it may take reads unparsed.
        self._read_sink: PieceSink | None = None
        self._may_take_reads = False
        self._failed: Exception | None = None
        # The first half of a split surrogate pair, until the second arrives.
        self._half = b""

    def arrived_piece(self) -> Piece | None:
        """Returns the first piece with content if it has arrived with the head of the response."""
        received, pieces = self._connection.take_arrived(), self._answer.pieces
        if received:
            self._receive(received)
        if not pieces or (pieces[0].is_empty and not pieces[0].last):
            return None
        self.limit_silence()
        self._begin()
        return pieces.popleft()

    async def first_piece(self) -> Piece:
        """Returns the first piece with content: before that, a failure can still fall back to another model."""
        piece = await self.next_piece()
        self.limit_silence()
        while piece.is_empty and not piece.last:
            piece = await self.next_piece()
        self._begin()
        return piece

    def _begin(self) -> None:
        self._has_begun = self._sink is not None
        self._read_sink = self._sink if self._answer.has_plain_reads else None
        self._connection.read_sink = self._read_sink if self._may_take_reads else None

    async def next_piece(self) -> Piece:
        pieces = self._answer.pieces
        if pieces:
            # One read brought several pieces: yield to the event loop between them.
            await asyncio.sleep(0)
        while not pieces:
            if self._failed is not None:
                raise self._failed
            if self._has_begun:
                self._connection.read_in_rounds()
            try:
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
        offered: if one read brought several, others have their turn between them."""
        self._receive(received)
        pieces = self._answer.pieces
        if pieces and self._has_begun:
            try:
                if self._sink.take(pieces[0]):  # type: ignore[union-attr]
                    pieces.popleft()
            except Exception as error:
                # Raised in the waiting task: here only the event loop would see it.
                pieces.clear()
                self._failed = error
        return not pieces and self._failed is None

    def _receive(self, received: bytes) -> None:
        """Splits received bytes into pieces; empty ones end the answer."""
        pieces = self._answer.pieces
        try:
            if self._connection.response.body_bytes > LARGEST_STREAM_BYTES:
                raise ProviderError("sent an endless answer")
            rest, room = self._read_leading_texts(received)
            if rest or not received:
                events = self._events.feed(rest) if rest else self._events.finish()
                if self._buffer.taken_bytes or not rest.endswith(b"\n\n"):
                    self._buffer.reserve(self._events.held_bytes)
                self._read(events, room)
            if not received and not self._answer.is_over:
                self._answer.close()
        except (ProviderError, EventTooLong) as error:
            # The pieces before the error are passed on first.
            self._failed = error if isinstance(error, ProviderError) else ProviderError("sent an endless event")
            if pieces and pieces[-1].is_empty:
                pieces.pop()
        # Whether the next read begins with an event, and may be one of texts.
        is_within = self._events.begun or self._events.data or self._half or self._answer.is_finished
        self._may_take_reads = not is_within
        self._connection.read_sink = None if is_within else self._read_sink

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

    def _read_leading_texts(self, received: bytes) -> tuple[bytes, int]:
        """Reads the events that have nothing but texts, faster than one by one; returns what follows them, and how many
        more events fit into their piece."""
        answer = self._answer
        if not answer.has_plain_reads or self._events.begun or self._events.data or self._half:
            return received, 0
        texts, end = read_leading_texts(received)
        if not end:
            return received, 0
        answer.begin_piece()
        answer.add_texts(*texts)
        return received[end:], MOST_EVENTS_A_PIECE - len(texts)

    def _read(self, events: list[bytes], room: int) -> None:
        """Reads events into the last piece, as far as it has room, and into others."""
        answer = self._answer
        for event in events:
            if not room:
                answer.begin_piece()
                room = MOST_EVENTS_A_PIECE
            self._read_event(event)
            room -= 1
            if answer.is_over:
                answer.close()
                return
        if answer.is_finished:
            self.limit_silence()

    def _read_event(self, event: bytes) -> None:
        if len(event) >= SHORT_BYTES:
            check_objects(event)
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
