"""A server that leaves, and what its clients notice of it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.chassis.http import server as server_module
from services.chassis.http.server import HttpServer, open_listener
from services.chassis.settings import SettingsError
from tests.services.chassis.http.hello_server import new_server

REQUEST = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Client:
    """One connection, for one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def begin(self, path: bytes = b"/") -> bytes:
        """The head of the answer."""
        self._writer.write(REQUEST % path)
        return await self._reader.readuntil(b"\r\n\r\n")

    async def end(self, last: bytes = b"hello") -> None:
        await self._reader.readuntil(last)

    async def upload(self) -> None:
        """More than a connection takes unread; it is answered before all of it was sent."""
        self._writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n")
        await asyncio.sleep(0.1)
        self._writer.write(bytes(8_000_000))
        await self._writer.drain()
        assert (await self._reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")

    async def is_closed(self) -> bool:
        return await self._reader.read() == b""


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            yield Client(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def server_to_end() -> AsyncIterator[tuple[int, HttpServer]]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = new_server(drain_s=10)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1], server
    server.should_exit = True
    await serving


async def test_clients_of_a_server_that_leaves_are_told_to_come_no_more_on_their_connections() -> None:
    async with server_to_end() as (port, server), connected(port) as old, connected(port) as new:
        assert b"connection: close" not in await old.begin()
        await old.end()
        server.stop_keeping_alive()
        for client in (old, new):
            assert b"connection: close" in await client.begin()
            await client.end()
            assert await client.is_closed()


async def test_request_that_comes_right_after_the_last_answer_is_answered() -> None:
    async with server_to_end() as (port, server), connected(port) as client:
        assert b"connection: close" not in await client.begin(b"/slow")
        server.stop_keeping_alive()
        server.should_exit = True
        # It has begun without being told that it is the last; it comes in chunks.
        await client.end(b"0\r\n\r\n")
        assert b"connection: close" in await client.begin()
        await client.end()
        assert await client.is_closed()


async def test_who_is_refused_by_a_server_that_leaves_may_finish_what_it_says() -> None:
    async with server_to_end() as (port, server), connected(port) as client:
        server.stop_keeping_alive()
        await client.upload()
        assert await client.is_closed()


async def test_idle_connections_are_closed_at_the_end() -> None:
    async with server_to_end() as (port, server), connected(port) as used, connected(port) as unused:
        await used.begin()
        await used.end()
        server.should_exit = True
        assert await used.is_closed()
        assert await unused.is_closed()


async def test_server_ends_as_soon_as_it_is_told_however_seldom_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "DATE_EVERY_S", 3600.0)
    async with server_to_end() as (port, server), connected(port) as client:
        assert b"\r\ndate: " in await client.begin()
        await client.end()
        assert not server.should_exit


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_that_is_taken_is_a_wrong_setting(host: str) -> None:
    with open_listener(host, 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on {host}:{port}: Address already in use"):
            open_listener(host, port)
