"""Any server that speaks OpenAI's chat completions."""

import asyncio
import io
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

import aiohttp

from services.router.providers import wire
from services.router.providers.base import (
    Call,
    Failure,
    Piece,
    ProviderError,
    ProviderRoute,
    ProviderUsage,
    Surroundings,
    Timeouts,
)
from services.router.providers.retry_after import read_retry_after
from services.router.providers.sse import EventReader, EventTooLong

LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
# aiohttp writes a file in pieces, bytes at once; so a big prompt goes as a file.
LARGEST_BODY_AT_ONCE_BYTES = 256 * 1024
# Many servers close a connection that was idle for 5 s. Below that, nobody writes to one that is being closed.
KEEP_ALIVE_S = 4.0
# How long to wait for the usage that follows the answer, and for the end of the response after that.
AFTER_ANSWER_S = 5.0
AFTER_DONE_S = 1.0

_REFUSED_STATUSES = (400, 413, 422)
# Too many requests, overloaded; the last two are those of single providers.
_BUSY_STATUSES = (429, 503, 498, 529)
# By these OpenAI, llama.cpp and vLLM say that a prompt is too long.
_CONTEXT_SIGNS = (b"context_length_exceeded", b"exceed_context_size_error", b"maximum context length")
# Our own account with the provider is empty. That is told with 429, but no waiting helps.
_QUOTA_SIGNS = (b"insufficient_quota", b"credit_balance_exhausted")


class OpenAIProvider:
    def __init__(
        self,
        base_url: str,
        timeouts: Timeouts,
        *,
        api_key: str = "",
        output_field: str = "max_tokens",
        extra_json: bytes = b"{}",
        connector: aiohttp.BaseConnector | None = None,
    ) -> None:
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._timeouts = timeouts
        self._output_field = output_field
        self._extra_json = extra_json
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "legato"}
        if api_key:
            headers["Authorization"] = f"Bearer {api_key}"
        self._session = aiohttp.ClientSession(
            connector=connector or aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=timeouts.connect_s),
            trust_env=False,
        )

    @classmethod
    def from_route(cls, route: ProviderRoute, surroundings: Surroundings) -> "OpenAIProvider":
        return cls(
            route.base_url,
            surroundings.timeouts,
            api_key=route.api_key,
            output_field=route.output_field,
            extra_json=route.extra_json,
        )

    async def aclose(self) -> None:
        await self._session.close()

    async def answer(self, call: Call) -> AsyncGenerator[Piece, None]:
        response: aiohttp.ClientResponse | None = None
        try:
            with _in_our_words():
                async with asyncio.timeout(self._timeouts.first_byte_s if call.stream else self._timeouts.whole_s):
                    response = await self._post(call)
                    stream = _Stream(response, self._timeouts.idle_s) if _is_stream(response, call) else None
                    piece = await stream.next_piece() if stream else wire.whole_piece(await _read_whole(response))
            yield piece
            if stream is not None:
                stream.limit_silence()
                while not piece.last:
                    with _in_our_words():
                        piece = await stream.next_piece()
                    yield piece
                await stream.read_to_end()
        finally:
            if response is not None:
                # Nothing is left to read where the answer was whole: that connection is in the pool already.
                response.close()

    async def _post(self, call: Call) -> aiohttp.ClientResponse:
        body = wire.encode_call(call, self._output_field, self._extra_json)
        data = body if len(body) <= LARGEST_BODY_AT_ONCE_BYTES else io.BytesIO(body)
        response = await self._session.post(self._url, data=data, allow_redirects=False)
        if response.status == 200:
            return response
        try:
            raise await _failure(response)
        finally:
            response.close()


class _Stream:
    """Reads the events of one response: those of one read make one piece."""

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float) -> None:
        self._response = response
        self._idle_s = idle_s
        self._content = response.content
        self._events = EventReader()
        self._ready: deque[Piece] = deque()
        self._failed: ProviderError | None = None
        self._finished = False
        self._usage: ProviderUsage | None = None

    async def next_piece(self) -> Piece:
        while not self._ready:
            if self._failed is not None:
                raise self._failed
            try:
                received = await self._content.readany()
            except (aiohttp.ClientError, TimeoutError):
                if not self._finished:
                    raise
                # The answer was whole; only its usage is missing.
                received = b""
            try:
                self._read(self._events.feed(received) if received else self._events.finish())
            except (ProviderError, EventTooLong) as error:
                # What came before it is passed on first.
                self._failed = error if isinstance(error, ProviderError) else ProviderError("sent an endless event")
                if self._ready and self._ready[-1].is_empty:
                    self._ready.pop()
            if not received:
                self._end()
        return self._ready.popleft()

    def limit_silence(self) -> None:
        """From now on: every byte that comes starts the time anew."""
        connection = self._response.connection
        if connection is not None and connection.protocol is not None:
            limit_s = min(self._idle_s, AFTER_ANSWER_S) if self._finished else self._idle_s
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
        piece = Piece()
        self._ready.append(piece)
        for event in events:
            if event == wire.DONE:
                self._end()
                return
            if not event:
                continue
            completion = wire.decode_completion(event)
            self._usage = wire.provider_usage(completion.usage) or self._usage
            if not completion.choices:
                continue
            choice = completion.choices[0]
            message = choice.delta or choice.message
            if message is not None:
                if piece.tool_calls and (message.content or message.refusal):
                    piece = Piece()
                    self._ready.append(piece)
                wire.add_to_piece(piece, message)
            if choice.finish_reason:
                piece.finish_reason = choice.finish_reason
                self._finished = True
                self.limit_silence()

    def _end(self) -> None:
        if self._failed is not None:
            return
        if not self._finished:
            self._failed = ProviderError("ended its stream before the answer was complete")
            return
        if not self._ready:
            self._ready.append(Piece())
        self._ready[-1].last = True
        self._ready[-1].usage = self._usage


def _is_stream(response: aiohttp.ClientResponse, call: Call) -> bool:
    """Some servers answer the other way than they were asked; what they say about their answer counts."""
    if call.stream:
        return response.content_type != "application/json"
    return response.content_type == "text/event-stream"


async def _read_whole(response: aiohttp.ClientResponse) -> bytes:
    received = bytearray()
    while piece := await response.content.readany():
        received += piece
        if len(received) > LARGEST_ANSWER_BYTES:
            raise ProviderError("sent an endless answer")
    return bytes(received)


async def _failure(response: aiohttp.ClientResponse) -> ProviderError:
    status = response.status
    what = f"answered with status {status}"
    if status in _REFUSED_STATUSES:
        failure = Failure.CONTEXT if await _says(response, _CONTEXT_SIGNS) else Failure.REFUSED
        return ProviderError(what, failure, status)
    if status in _BUSY_STATUSES and not await _says(response, _QUOTA_SIGNS):
        return ProviderError(what, Failure.BUSY, status, read_retry_after(response.headers))
    return ProviderError(what, Failure.PROVIDER, status)


async def _says(response: aiohttp.ClientResponse, signs: tuple[bytes, ...]) -> bool:
    said = (await response.content.read(16 * 1024)).lower()
    return any(sign in said for sign in signs)


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
