"""Asks a provider's server over HTTP, and reads its answer in one piece or as events.

What the words mean is each provider's: it brings an `Answer` that understands them, and `Signs` for what goes wrong.
"""

import asyncio
import io
import socket
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp.connector import AddrInfoType

from services.router.providers.answer import Answer
from services.router.providers.base import Piece, ProviderError, Timeouts
from services.router.providers.failures import TELLING_STATUSES, Signs, read_failure
from services.router.providers.sse import EventReader, EventTooLong

LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
LARGEST_FAILURE_BYTES = 16 * 1024
# aiohttp writes a file in pieces, bytes at once; so a big prompt goes as a file.
LARGEST_BODY_AT_ONCE_BYTES = 256 * 1024
# How much of an answer may wait for a client that does not read, in aiohttp and in the kernel: one read brings all that
# the kernel has, and would have it grow to megabytes. It is still far more than a model writes in a round trip.
READ_AHEAD_BYTES = 16 * 1024
RECEIVE_BUFFER_BYTES = 32 * 1024
# Events that come together are passed on together, but not in any number: each becomes larger on its way to the client.
MOST_EVENTS_A_PIECE = 32
# Many servers close a connection that was idle for 5 s. Below that, nobody writes to one that is being closed.
KEEP_ALIVE_S = 4.0
# How long to wait for the usage that follows the answer, and for the end of the response after that.
AFTER_ANSWER_S = 5.0
AFTER_DONE_S = 1.0


@dataclass(frozen=True, slots=True, repr=False)
class Question:
    url: str
    body: bytes
    # Whether an answer as events is asked for.
    stream: bool


class Server:
    def __init__(
        self,
        timeouts: Timeouts,
        signs: Signs,
        headers: Mapping[str, str],
        connector: aiohttp.BaseConnector | None = None,
    ) -> None:
        self._timeouts = timeouts
        self._signs = signs
        self._session = aiohttp.ClientSession(
            connector=connector
            or aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, socket_factory=_new_socket),
            headers={
                "Content-Type": "application/json",
                "Accept-Encoding": "identity",
                "User-Agent": "legato",
                **headers,
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=timeouts.connect_s),
            trust_env=False,
            read_bufsize=READ_AHEAD_BYTES,
        )

    async def aclose(self) -> None:
        await self._session.close()

    async def warm(self, url: str) -> None:
        """Whatever the server says to it: the connection is what it is for, and that is in the pool afterwards."""
        with _in_our_words():
            async with asyncio.timeout(self._timeouts.connect_s):
                async with self._session.head(url, allow_redirects=False):
                    pass

    async def ask(self, question: Question, answer: Answer) -> AsyncGenerator[Piece, None]:
        """The pieces of the answer as they come. Closing the generator closes the connection."""
        response: aiohttp.ClientResponse | None = None
        try:
            with _in_our_words():
                async with asyncio.timeout(self._timeouts.first_byte_s if question.stream else self._timeouts.whole_s):
                    response = await self._post(question)
                    stream = None
                    if _is_stream(response, question):
                        stream = Stream(response, self._timeouts.idle_s, answer)
                        piece = await stream.next_piece()
                    else:
                        piece = _read_pieces(await _read_whole(response), answer)
                if stream is not None:
                    stream.limit_silence()
                    # Who has only opened his mouth may still fail, and then another can be asked.
                    while piece.is_empty and not piece.last:
                        piece = await stream.next_piece()
            yield piece
            if stream is None:
                while answer.pieces:
                    yield answer.pieces.popleft()
                return
            while not piece.last:
                with _in_our_words():
                    piece = await stream.next_piece()
                yield piece
            await stream.read_to_end()
        finally:
            if response is not None:
                # Nothing is left to read where the answer was whole: that connection is in the pool already.
                response.close()

    async def _post(self, question: Question) -> aiohttp.ClientResponse:
        body = question.body
        data = body if len(body) <= LARGEST_BODY_AT_ONCE_BYTES else io.BytesIO(body)
        response = await self._session.post(question.url, data=data, allow_redirects=False)
        if response.status == 200:
            return response
        try:
            said = b""
            if response.status in TELLING_STATUSES:
                said = await response.content.read(LARGEST_FAILURE_BYTES)
            raise read_failure(response.status, response.headers, said, self._signs)
        finally:
            response.close()


class Stream:
    """Reads the events of one response: those of one read make one piece."""

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float, answer: Answer) -> None:
        self._response = response
        self._idle_s = idle_s
        self._content = response.content
        self._events = EventReader()
        self._answer = answer
        self._failed: ProviderError | None = None

    async def next_piece(self) -> Piece:
        pieces = self._answer.pieces
        while not pieces:
            if self._failed is not None:
                raise self._failed
            try:
                received = await self._content.readany()
            except (aiohttp.ClientError, TimeoutError):
                if not self._answer.is_finished:
                    raise
                # The answer was whole; only its usage is missing.
                received = b""
            try:
                self._read(self._events.feed(received) if received else self._events.finish())
                if not received and not self._answer.is_over:
                    self._answer.end()
            except (ProviderError, EventTooLong) as error:
                # What came before it is passed on first.
                self._failed = error if isinstance(error, ProviderError) else ProviderError("sent an endless event")
                if pieces and pieces[-1].is_empty:
                    pieces.pop()
        return pieces.popleft()

    def limit_silence(self) -> None:
        """From now on: every byte that comes starts the time anew."""
        connection = self._response.connection
        if connection is not None and connection.protocol is not None:
            limit_s = min(self._idle_s, AFTER_ANSWER_S) if self._answer.is_finished else self._idle_s
            connection.protocol.read_timeout = limit_s
            connection.protocol.start_timeout()

    async def read_to_end(self) -> None:
        """A connection can be used again only when its response was read to the end."""
        try:
            async with asyncio.timeout(AFTER_DONE_S):
                while not self._content.at_eof() and await self._content.readany():
                    pass
        except (aiohttp.ClientError, TimeoutError):
            pass

    def _read(self, events: list[bytes]) -> None:
        if not events:
            return
        self._answer.begin_piece()
        for number, event in enumerate(events):
            if number and number % MOST_EVENTS_A_PIECE == 0:
                self._answer.begin_piece()
            if event:
                self._answer.read_event(event)
            if self._answer.is_over:
                self._answer.end()
                return
        if self._answer.is_finished:
            self.limit_silence()


def _new_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, *_ = address
    connection = socket.socket(family, kind, protocol)
    # Before it is connected: then the other side is never told of a larger window.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    return connection


def _is_stream(response: aiohttp.ClientResponse, question: Question) -> bool:
    """Some servers answer the other way than they were asked; what they say about their answer counts."""
    if question.stream:
        return response.content_type != "application/json"
    return response.content_type == "text/event-stream"


async def _read_whole(response: aiohttp.ClientResponse) -> bytes:
    received = bytearray()
    while piece := await response.content.readany():
        received += piece
        if len(received) > LARGEST_ANSWER_BYTES:
            raise ProviderError("sent an endless answer")
    return bytes(received)


def _read_pieces(body: bytes, answer: Answer) -> Piece:
    answer.begin_piece()
    answer.read_whole(body)
    answer.end()
    return answer.pieces.popleft()


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except TimeoutError:
        raise ProviderError("did not answer in time") from None
    except aiohttp.ClientConnectorError:
        raise ProviderError("could not be reached") from None
    except (aiohttp.ClientError, OSError):
        raise ProviderError("broke the connection") from None
