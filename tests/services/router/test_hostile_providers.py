"""Providers that send too much: their own chat fails or is answered elsewhere, and no other does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.router.providers.http.http_provider import LARGEST_ANSWER_BYTES
from services.router.providers.http.sse import LONGEST_EVENT_BYTES
from tests.services.router.harness import read, running_router, target
from tests.support.servers.byte_server import listening, read_request
from tests.support.upstreams.openai import Upstream

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = STREAM.replace(b"text/event-stream", b"application/json")
BEGUN = b'data: {"choices":[{"delta":{"content":"Hello"}}]}\n\n'
ENDED = b'data: {"choices":[{"delta":{"content":"!"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
SECOND = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


class Raw(Upstream):
    """Says the same bytes to every question."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port


@asynccontextmanager
async def saying(*writes: bytes) -> AsyncIterator[Raw]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for write in writes:
                writer.write(write)
                await writer.drain()

    async with listening(serve) as port:
        yield Raw(port)


LINE = b"data: " + b"x" * 1024 * 1024 + b"\n"
CALLS = b"".join(
    b'%b{"index":%d,"id":"c%d","function":{"name":"f","arguments":""}}' % (b"," if n else b"", n, n)
    for n in range(10_000)
)
TOO_MUCH = {
    "event of many lines": [STREAM, *[chunk(LINE)] * (LONGEST_EVENT_BYTES // len(LINE) + 2)],
    "calls": [STREAM, chunk(b'data: {"choices":[{"delta":{"tool_calls":[%b]}}]}\n\n' % CALLS)],
    "parts": [STREAM, chunk(b'data: {"choices":[{"delta":{"content":[%b{}]}}]}\n\n' % (b"{}," * 50_000))],
    "trailers": [STREAM, b"0\r\n", *[b"X: y\r\n" * 10_000] * 10],
    "interim answers": [b"HTTP/1.1 100 Continue\r\n\r\n" * 1000] * 10,
    "headers": [STREAM[:-2] + b"X: y\r\n" * 1000 + b"\r\n"],
    "whole answer": [WHOLE, *[chunk(b" " * 1024 * 1024)] * (LARGEST_ANSWER_BYTES // 1024**2 + 2)],
}


@pytest.mark.parametrize("what", TOO_MUCH)
async def test_answer_that_is_too_much_before_it_begins_is_given_by_the_next_model(
    what: str, socket_folder: Path, log: Log
) -> None:
    async with (
        saying(*TOO_MUCH[what]) as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        answer = await router.ask()
        assert (answer.text, answer.responses[0].started.attempt) == ("Hello, world!", 2)


@pytest.mark.parametrize("what", ["event of many lines", "calls", "parts", "trailers"])
async def test_answer_that_becomes_too_much_ends_with_an_error_after_what_was_said(
    what: str, socket_folder: Path, log: Log
) -> None:
    head, *too_much = TOO_MUCH[what]
    async with (
        saying(head + chunk(BEGUN), *too_much) as upstream,
        running_router(socket_folder, log, {target("main"): upstream}) as router,
    ):
        call = router.open()
        first = await call.receive()
        assert first is not None
        assert list(first.contents) == ["Hello"]
        with pytest.raises(LegatoError) as failure:
            await read(call)
        assert failure.value.reason is Reason.UPSTREAM_FAILED


@pytest.mark.parametrize("behind", [SECOND, SECOND * 20, b"garbage"], ids=["an answer", "twenty", "garbage"])
async def test_more_behind_an_answer_spoils_no_chat(behind: bytes, socket_folder: Path, log: Log) -> None:
    said = STREAM + chunk(BEGUN + ENDED) + b"0\r\n\r\n" + behind
    async with (
        saying(said) as upstream,
        running_router(socket_folder, log, {target("main"): upstream}) as router,
    ):
        assert [(await router.ask()).text for _ in range(10)] == ["Hello!"] * 10
