"""The wait for a server, and what is made of a failure that does not come whole: over a real socket."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.chassis.http_client import connection
from services.router.providers.base import Failure, Piece, ProviderCall, ProviderError, Timeouts
from services.router.providers.http import http_provider as http
from services.router.providers.http import surrogate_halves as halves
from services.router.providers.http.answer_buffer import BUDGET_BYTES, FREE_BYTES
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.providers.asking import (
    both_ways,
    failure_of,
    hidden_of,
    make_call,
    opened,
    pieces_of,
    text_of,
)
from tests.services.router.providers.http.relayed_chat import chunk, framed
from tests.support.servers.byte_server import Serve, listening, read_request

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
THOUGHT = b'data: {"choices":[{"delta":{"reasoning":"Hm."}}]}\n\n'
HELLO = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


@asynccontextmanager
async def asking(serve: Serve, timeouts: Timeouts | None = None) -> AsyncIterator[OpenAIProvider]:
    async with listening(serve) as port:
        provider = opened(OpenAIProvider, f"http://127.0.0.1:{port}/v1", timeouts or Timeouts())
        try:
            yield provider
        finally:
            await provider.aclose()


def saying(*writes: bytes, every_s: float = 0.0, stays_s: float = 0.0) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        for write in writes:
            writer.write(write)
            await writer.drain()
            await asyncio.sleep(every_s)
        await asyncio.sleep(stays_s)

    return serve


@pytest.mark.parametrize("lifesign", [b": keep-alive\n\n", b"data: \n\n", ROLE, b'data: {"choices":[]}\n\n'])
async def test_server_that_stays_alive_and_says_nothing_is_given_up_at_last(lifesign: bytes) -> None:
    timeouts = Timeouts(first_byte_s=5, idle_s=5, total_s=0.4)
    began_s = time.monotonic()
    async with asking(saying(STREAM + ROLE, *[lifesign] * 500, every_s=0.02), timeouts) as provider:
        assert (await failure_of(provider)).what == "took too long to answer"
    assert 0.4 <= time.monotonic() - began_s < 5


async def test_server_that_says_nothing_at_all_has_no_longer_than_the_whole_may_take() -> None:
    timeouts = Timeouts(first_byte_s=60, idle_s=60, total_s=0.2)
    async with asking(saying(stays_s=60), timeouts) as provider:
        assert (await failure_of(provider)).what == "did not answer in time"


@pytest.mark.parametrize("lifesign", [b": OPENROUTER PROCESSING\n\n", b"data: \n\n", THOUGHT])
async def test_model_that_thinks_for_long_is_waited_for_as_long_as_it_shows_life(lifesign: bytes) -> None:
    timeouts = Timeouts(first_byte_s=0.3, idle_s=0.3, total_s=60)
    async with asking(saying(STREAM + ROLE, *[lifesign] * 20, HELLO, every_s=0.05), timeouts) as provider:
        pieces = await pieces_of(provider)
    assert text_of(pieces) == "Hello"
    assert hidden_of(pieces) == ("Hm." * 20 if lifesign is THOUGHT else "")


def spoken(text: str, finish_reason: str = "null") -> bytes:
    """A delta in which each half of a character is written as an escape."""
    content = json.dumps(text)
    return f'data: {{"choices":[{{"delta":{{"content":{content}}},"finish_reason":{finish_reason}}}]}}\n\n'.encode()


async def test_character_that_was_cut_in_two_is_put_together() -> None:
    events = [spoken("Hello \ud83d"), spoken("\ude00 there"), spoken("!", '"stop"')]
    async with asking(saying(STREAM, *events, every_s=0.01)) as provider:
        assert text_of(await pieces_of(provider)) == "Hello 😀 there!"


async def test_half_of_a_character_that_follows_none_is_nonsense() -> None:
    async with asking(saying(STREAM, spoken("\ude00", '"stop"'))) as provider:
        assert (await failure_of(provider)).what == "sent something that is not a chat completion"


BUSY = b'HTTP/1.1 429 Too Many\r\nRetry-After: 7\r\nContent-Length: 100\r\n\r\n{"error":'


@both_ways
async def test_failure_whose_words_are_cut_off_means_what_is_known_of_it(call: ProviderCall) -> None:
    async with asking(saying(BUSY)) as provider:
        failure = await failure_of(provider, call)
    assert (failure.failure, failure.http_status, failure.retry_after_s) == (Failure.BUSY, 429, 7)


@both_ways
async def test_rest_of_a_failure_s_words_is_not_waited_for_long(
    call: ProviderCall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "AFTER_FAILURE_S", 0.1)
    async with asking(saying(BUSY, stays_s=60)) as provider:
        failure = await failure_of(provider, call)
    assert (failure.failure, failure.retry_after_s) == (Failure.BUSY, 7)


WHOLE = b'{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(WHOLE), WHOLE)


class Forgetful:
    """Answers the first request of every connection. To the second it does as it is told, and hangs up."""

    def __init__(self, then: bytes = b"", after_s: float = 0) -> None:
        self.connections = 0
        self.requests = 0
        self._then = then
        self._after_s = after_s

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for said, after_s in ((ANSWER, 0.0), (self._then, self._after_s)):
            await read_request(reader)
            self.requests += 1
            await asyncio.sleep(after_s)
            writer.write(said)


@both_ways
async def test_kept_connection_that_is_closed_while_it_is_used_costs_no_answer(call: ProviderCall) -> None:
    server = Forgetful()
    async with asking(server.serve) as provider:
        for connections in (1, 2, 3):
            assert text_of(await pieces_of(provider, call)) == "Hello"
            assert server.connections == connections


@pytest.mark.parametrize(
    "server",
    [
        Forgetful(b"H"),
        Forgetful(b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        Forgetful(b"nonsense\r\n"),
        Forgetful(after_s=0.2),
    ],
    ids=["a byte", "a hint", "nonsense", "late"],
)
async def test_question_that_may_have_been_heard_is_not_asked_twice(
    server: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CLOSED_UNHEARD_WITHIN_S", 0.1)
    async with asking(server.serve) as provider:
        await pieces_of(provider)
        assert (await failure_of(provider)).what == "broke the connection"
    assert (server.connections, server.requests) == (1, 2)


@both_ways
@pytest.mark.parametrize("stray", [b"nonsense\r\n", b"H", ANSWER.replace(b"Hello", b"Other")], ids=len)
async def test_bytes_that_came_before_a_question_are_not_its_answer(call: ProviderCall, stray: bytes) -> None:
    writers: list[asyncio.StreamWriter] = []
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        writers.append(writer)
        while await read_request(reader):
            requests += 1
            writer.write(ANSWER)

    async with asking(serve) as provider:
        await pieces_of(provider, call)
        # The kernel has them at once, and the event loop reads nothing before the next question is sent.
        writers[0].write(stray)
        assert text_of(await pieces_of(provider, call)) == "Hello"
    assert (len(writers), requests) == (2, 2)


async def test_question_that_was_met_with_silence_is_not_asked_twice() -> None:
    server = Forgetful(after_s=60)
    async with asking(server.serve, Timeouts(first_byte_s=0.2)) as provider:
        await pieces_of(provider)
        assert (await failure_of(provider)).what == "did not answer in time"
    assert (server.connections, server.requests) == (1, 2)


LAST_CHUNK = b"0\r\n\r\n"


class TakesReads:
    """A sink that takes what arrives of one answer, but for its end."""

    def __init__(self) -> None:
        self.reads: list[bytes] = []

    def take(self, _: Piece) -> bool:
        return False

    def take_read(self, read: bytes) -> int:
        if read.endswith(LAST_CHUNK):
            return 0
        self.reads.append(read)
        return len(read)


async def test_an_answer_that_failed_takes_nothing_of_the_next_one_on_its_connection() -> None:
    head = STREAM[:-2] + b"Transfer-Encoding: chunked\r\n\r\n"
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for event in (b'data: {"error":{"code":500}}\n\n', HELLO):
            await read_request(reader)
            for write in (head, framed(chunk("Well")), framed(chunk(", ")), framed(event) + LAST_CHUNK):
                writer.write(write)
                await asyncio.sleep(0.05)

    failed, next_one = TakesReads(), TakesReads()
    async with asking(serve) as provider:
        call = make_call("any", b"[]", max_tokens=9)
        call.sink = failed
        with pytest.raises(ProviderError):
            await pieces_of(provider, call)
        call.sink = next_one
        assert text_of(await pieces_of(provider, call)) == "WellHello"
    assert failed.reads == next_one.reads == [framed(chunk(", "))]
    assert connections == 1


async def test_new_connection_that_is_closed_is_not_tried_again() -> None:
    connections = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)

    async with asking(hang_up) as provider:
        assert (await failure_of(provider)).what == "broke the connection"
    assert connections == 1


@pytest.mark.parametrize("content_type", [b"text/event-stream", b"application/json"])
async def test_room_of_an_answer_is_free_again_however_it_ends(content_type: bytes) -> None:
    head = STREAM.replace(b"text/event-stream", content_type)
    much = b"data: " + b"x" * 4 * FREE_BYTES
    async with asking(saying(head, much)) as provider:
        for _ in range(2):
            await failure_of(provider)
        assert provider._budget.left_bytes == BUDGET_BYTES


async def test_flood_behind_the_end_of_an_answer_is_not_read() -> None:
    flood = [b": x\n" * 16 * 1024] * 1000
    async with asking(saying(STREAM + HELLO, *flood)) as provider, asyncio.timeout(30):
        assert text_of(await pieces_of(provider)) == "Hello"


async def test_large_event_is_not_searched_for_halves_of_characters() -> None:
    escapes = b"\\n" * halves.LONGEST_HALVED_BYTES
    event = b'data: {"choices":[{"delta":{"content":"%b\\ud83d"}}]}\n\n' % escapes
    async with asking(saying(STREAM + event)) as provider:
        assert (await failure_of(provider)).what == "sent something that is not a chat completion"
