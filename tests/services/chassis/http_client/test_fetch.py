"""Responses that are read whole, up to a limit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.fetch import WholeResponse, fetch
from services.chassis.http_client.origin import Origin, RequestHead
from services.chassis.http_client.pool import ConnectionPool
from tests.support.servers.byte_server import Serve, listening, read_request

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
HEAD = RequestHead(Origin("127.0.0.1", 80), {})


@asynccontextmanager
async def pool_of(serve: Serve) -> AsyncIterator[ConnectionPool]:
    async with listening(serve) as port:
        connections = ConnectionPool(Origin("127.0.0.1", port), connect_s=30)
        try:
            yield connections
        finally:
            await connections.aclose()


async def get(connections: ConnectionPool, timeout_s: float = 30, most_bytes: int = 1_000) -> WholeResponse:
    return await fetch(connections, HEAD.for_reading("/page"), timeout_s=timeout_s, most_bytes=most_bytes)


@pytest.mark.parametrize(
    ("most_bytes", "body", "is_whole"), [(6, b"hello", True), (5, b"hello", True), (4, b"hell", False)]
)
async def test_body_is_cut_at_its_limit(most_bytes: int, body: bytes, is_whole: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader):
            writer.write(HELLO)

    async with pool_of(serve) as connections:
        response = await get(connections, most_bytes=most_bytes)
        assert (response.status, response.body, response.is_whole) == (200, body, is_whole)


async def test_endless_body_is_left_and_its_connection_with_it() -> None:
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 10_000)
            await writer.drain()

    async with pool_of(serve) as connections:
        for _ in range(2):
            response = await get(connections)
            assert (len(response.body), response.is_whole) == (1_000, False)
    assert opened == 2


async def test_redirect_is_returned_and_not_followed() -> None:
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await read_request(reader):
            requests.append(request)
            writer.write(b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")

    async with pool_of(serve) as connections:
        assert (await get(connections)).status == 302
    assert [request.split()[1] for request in requests] == [b"/page"]


async def test_connection_that_was_closed_while_idle_is_replaced() -> None:
    opened = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        await read_request(reader)
        writer.write(HELLO)
        # A second request on the same connection meets its end, without a byte of a response.
        await read_request(reader)

    async with pool_of(serve) as connections:
        assert [(await get(connections)).body for _ in range(2)] == [b"hello", b"hello"]
    assert opened == 2


async def test_server_that_never_answers_meets_the_timeout() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await asyncio.Event().wait()

    async with pool_of(serve) as connections:
        with pytest.raises(Interrupted, match="did not answer in time"):
            await get(connections, timeout_s=0.1)


async def test_timeout_covers_a_body_that_comes_byte_by_byte() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with pool_of(serve) as connections:
        with pytest.raises(Interrupted, match="did not answer in time"):
            await get(connections, timeout_s=0.3, most_bytes=1_000_000)
