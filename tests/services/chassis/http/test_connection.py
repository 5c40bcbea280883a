"""The HTTP server before there is a request to speak of."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from services.chassis.http.answer import Answer
from services.chassis.http.asgi import HttpScope
from services.chassis.http.connection import ServerConnection
from tests.services.chassis.http.hello import PIECE
from tests.services.chassis.http.hello_server import exchange, is_error_shape, served


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"hello there\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_refused_in_the_error_shape(port: int, request_bytes: bytes) -> None:
    head, body = await exchange(port, request_bytes)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)


@pytest.mark.parametrize("request_bytes", [b"", b"GET / HTTP/1.1\r\nhost:"])
async def test_headers_that_do_not_come_in_time_are_not_waited_for(
    port: int, request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerConnection, "headers_timeout_s", 0.05)
    head, body = await exchange(port, request_bytes)
    assert head.startswith(b"HTTP/1.1 408 ")
    assert is_error_shape(body)


async def test_garbage_after_a_good_request_is_refused_too(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await reader.readuntil(b"hello")
    writer.write(b"and now for something else\r\n\r\n")
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)
    writer.close()


async def test_late_second_request_does_not_disturb_the_answer_to_the_first(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerConnection, "headers_timeout_s", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nho")
    async with asyncio.timeout(60):
        first = await reader.readuntil(b"\r\n0\r\n\r\n")
        assert first.count(b"still here ") == 5
        assert b"408" not in first
        # Its headers are waited for no longer than those of any other.
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")
    writer.close()


async def test_answer_longer_than_the_headers_may_take_is_not_cut(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerConnection, "headers_timeout_s", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0.1)
    writer.close()


def refuse_those_in_a_hurry(scope: HttpScope) -> Answer | None:
    return Answer(429, [(b"retry-after", b"1")], b"no room") if scope["path"] == "/hurry" else None


@pytest.fixture
async def full_port() -> AsyncIterator[int]:
    """Port of a server too full for some."""
    async with served(refuse_at_once=refuse_those_in_a_hurry) as port:
        yield port


@pytest.mark.parametrize("body", [b"", b"half of it", bytes(200_000)])
async def test_who_is_refused_at_once_may_ask_again_on_the_same_connection(full_port: int, body: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", full_port)
    hurry = b"POST /hurry HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    async with asyncio.timeout(60):
        for _ in range(3):
            writer.write(hurry)
            refusal = await reader.readuntil(b"no room")
            assert refusal.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
            assert b"\r\nretry-after: 1\r\n" in refusal
        # One after the other without waiting, too.
        writer.write(hurry + b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + hurry)
        assert (await reader.readuntil(b"no room")).startswith(b"HTTP/1.1 429 ")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        assert (await reader.readuntil(b"no room")).startswith(b"HTTP/1.1 429 ")
    writer.close()


async def test_client_that_does_not_read_is_not_given_more_than_one_piece_ahead(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces that wait in a killed process are lost, and were counted as delivered."""
    transports: list[asyncio.Transport] = []
    made = ServerConnection.connection_made

    def keep_transport(self: ServerConnection, transport: asyncio.Transport) -> None:
        transports.append(transport)
        made(self, transport)

    monkeypatch.setattr(ServerConnection, "connection_made", keep_transport)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /much HTTP/1.1\r\nHost: test\r\n\r\n")
        async with asyncio.timeout(60):
            while not transports or not transports[0].get_write_buffer_size():
                await asyncio.sleep(0.01)
        # The chunk's own frame is a few bytes.
        assert transports[0].get_write_buffer_size() <= len(PIECE) + 16


async def test_head_and_first_piece_leave_in_one_write(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each write is a call into the kernel, and that costs more than all else that is done to send an answer."""
    writes: list[bytes] = []
    made = ServerConnection.connection_made

    def note_writes(self: ServerConnection, transport: asyncio.Transport) -> None:
        made(self, transport)
        self.transport = cast(asyncio.Transport, NotedTransport(transport, writes))

    monkeypatch.setattr(ServerConnection, "connection_made", note_writes)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    async with asyncio.timeout(60):
        await reader.readuntil(b"hello")
    assert len(writes) == 1
    writer.close()


class NotedTransport:
    """Notes what is written, and is the transport otherwise."""

    def __init__(self, transport: asyncio.Transport, writes: list[bytes]) -> None:
        self._transport = transport
        self._writes = writes

    def write(self, piece: bytes) -> None:
        self._writes.append(piece)
        self._transport.write(piece)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
