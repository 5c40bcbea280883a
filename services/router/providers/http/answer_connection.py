"""The connection by which a model's answer streams: it is read in rounds with others, and by its reader at once."""

import asyncio
from typing import Final, Protocol, cast

from services.chassis.http_client.connection import HttpConnection, Owner
from services.chassis.http_client.origin import Origin
from services.chassis.http_client.pool import ConnectionPool
from services.chassis.http_client.response import ResponseReader
from services.router.compiled import ChunkPosition
from services.router.providers.base import PieceSink
from services.router.providers.http.read_rounds import ReadRounds, RoundReader

_END_OF_HEAD: Final = b"\r\n\r\n"


class BodyReader(Protocol):
    """Reads the body of a response in the callback of each read, while its task waits."""

    def take_body(self, received: bytes) -> bool:
        """Takes what has arrived of the body; returns False if the task has to go on."""
        ...


class ChunkedResponse(ResponseReader):
    """Knows whether what has been read ends with a chunk: a parser that is between two need not see whole ones."""

    def __init__(self) -> None:
        self.position = position = ChunkPosition()
        # Called by the parser, for every chunk.
        self.on_chunk_header, self.on_chunk_complete = position.begin, position.end
        # Whether the last chunk is complete and nothing of the next has arrived.
        self.is_between_chunks = False
        super().__init__()

    def begin(self, *, is_asked: bool) -> None:
        super().begin(is_asked=is_asked)
        self.position.begin()
        self.is_between_chunks = False

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.is_chunked:
            self.position.end()

    def _feed_head(self, data: bytes) -> None:
        while data and not self.status:
            # Interim responses have a head, too.
            head, end, data = data.partition(_END_OF_HEAD)
            head += end
            super()._feed_head(head)
            # Where the head ends in an unusual way, more than a head was fed.
            self.is_between_chunks = self.position.is_between and head.endswith(b"\r\n")
        if data:
            self._feed_body(data)

    def _feed_body(self, data: bytes) -> None:
        super()._feed_body(data)
        # The last chunk may also be followed by the incomplete size of the next.
        self.is_between_chunks = self.position.is_between and data.endswith(b"\r\n")


class AnswerConnection(HttpConnection):
    response: ChunkedResponse

    def __init__(self, owner: Owner, rounds: ReadRounds) -> None:
        super().__init__(owner)
        self._rounds = rounds
        self._round_reader: RoundReader | None = None
        # Set while its task waits.
        self._reader: BodyReader | None = None
        # As the response's.
        self._is_between_chunks = False
        # Takes reads unparsed; set while the next read begins with an event, if it begins where an HTTP chunk does.
        self.read_sink: PieceSink | None = None
        # What it has taken, until the response counts it. A read touches few objects: with many streams they are not in
        # the processor's cache.
        self._taken_bytes = self._taken_body_bytes = 0

    def _new_response(self) -> ResponseReader:
        return ChunkedResponse()

    def take_arrived(self) -> bytes:
        """Returns bytes that are here already."""
        received = self.response.take()
        self._read_or_pause()
        return received

    async def read_by(self, reader: BodyReader) -> bytes:
        """Returns bytes that are here already. Later ones are taken by the reader as they arrive, while this waits;
        once it takes no more, or at the end, empty bytes are returned."""
        response = self.response
        while not response.received and not response.is_whole:
            self._reader = reader
            try:
                await self._change()
                if self._reader is not reader:
                    return b""
            finally:
                self._reader = None
        return self.take_arrived()

    def read_in_rounds(self) -> None:
        """Reads the rest of the response in rounds with others, and so some milliseconds late."""
        reader, is_over = self._round_reader, self._is_reading_paused or self.response.is_whole
        if reader is not None and self._is_usable and not is_over:
            reader.join()

    def release(self) -> None:
        # An answer that failed ends without its sink: the next one on this connection is another client's.
        self.read_sink = None
        super().release()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._round_reader is None:
            # With TLS, the first transport is the one of the socket, and this is called again for the other.
            self._round_reader = RoundReader(self._rounds, cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        sink, waiter = self.read_sink, self._waiter
        if sink is not None and self._is_between_chunks and waiter is not None and self._reader is not None:
            try:
                taken_bytes = 0 if waiter.done() else sink.take_read(data)
            except Exception:
                # It is parsed instead, and what fails then is raised in the reader's task.
                taken_bytes = 0
            if taken_bytes:
                # The parser, which is between two chunks, need not see whole ones.
                self._taken_bytes += len(data)
                self._taken_body_bytes += taken_bytes
                if self._answer_by_s is None:
                    # It is set already, and only moves on, for which no timer has to be touched.
                    self._deadline.at_s = self._loop.time() + self._silence_s
                return
        if self._taken_bytes:
            response = self.response
            response.read_bytes += self._taken_bytes
            response.body_bytes += self._taken_body_bytes
            response.bytes_without_body = 0
            self._taken_bytes = self._taken_body_bytes = 0
        super().data_received(data)
        self._is_between_chunks = self.response.is_between_chunks

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._round_reader = None

    def _is_taken(self) -> bool:
        waiter, reader, response = self._waiter, self._reader, self.response
        if reader is None or waiter is None or waiter.done():
            # A cancelled task takes nothing more.
            return False
        received = response.received
        if received:
            # As `take` does: it would be one more call for every chunk.
            body = received[0] if len(received) == 1 else b"".join(received)
            received.clear()
            response.received_bytes = 0
            if not reader.take_body(body):
                self._reader = None
                return False
        if response.is_whole:
            return False
        if self._answer_by_s is None:
            self._deadline.at_s = self._loop.time() + self._silence_s
        return True

    def _stop_reading_instead(self) -> None:
        if self._round_reader is not None:
            self._round_reader.leave()


class AnswerConnections(ConnectionPool):
    """The connections to one provider's server."""

    def __init__(self, origin: Origin, connect_s: float, *, keep: bool = True) -> None:
        super().__init__(origin, connect_s, keep=keep)
        self._rounds = ReadRounds()

    async def aclose(self) -> None:
        await super().aclose()
        self._rounds.close()

    def _new(self) -> HttpConnection:
        return AnswerConnection(self, self._rounds)
