"""More connections than there is room for."""

import asyncio
import io
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.chassis.http.addresses import Addresses
from services.chassis.http.connection_limit import ConnectionLimit, ConnectionsByAddress, most_connections
from services.chassis.telemetry.log import Log
from tests.services.chassis.http.hello_server import is_error_shape, new_server
from tests.support.fakes import FakeClock
from tests.support.waiting import until

GET = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"


class Server:
    def __init__(self, most: int, by_address: ConnectionsByAddress | None = None) -> None:
        self.said = io.StringIO()
        self.clock = FakeClock()
        self.connections = ConnectionLimit(most, self.clock, Log("edge", self.said), by_address)
        self.port = 0

    @property
    def lines(self) -> int:
        return self.said.getvalue().count("connections.full")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Server"]:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        server = new_server(connections=self.connections)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield self
        server.should_exit = True
        await serving

    async def connect(self, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))


async def test_who_has_waited_longest_without_a_request_makes_room() -> None:
    async with Server(3).opened() as server, asyncio.timeout(30):
        clients = []
        for _ in range(5):
            clients.append(await server.connect())
            await until(lambda: server.connections.open == min(len(clients), 3))
        for reader, _ in clients[:2]:
            assert await reader.read() == b""
        for reader, writer in clients[2:]:
            writer.write(GET % b"/")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        assert server.connections.idle_closed == 2
        for _, writer in clients:
            writer.close()


async def test_no_client_that_is_being_answered_makes_room() -> None:
    async with Server(2).opened() as server, asyncio.timeout(30):
        busy = [await server.connect() for _ in range(2)]
        for reader, writer in busy:
            writer.write(GET % b"/much")
            await reader.readuntil(b"\r\n\r\n")
        reader, writer = await server.connect()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert is_error_shape(body)
        assert server.connections.refused == 1
        assert server.connections.open == 2
        for _, each in [*busy, (reader, writer)]:
            each.transport.abort()
        # There is room again.
        await until(lambda: server.connections.open == 0)
        reader, writer = await server.connect()
        writer.write(GET % b"/")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_log_says_so_once_a_minute() -> None:
    server = Server(1)
    for _ in range(5):
        server.connections.record_full()
    assert server.lines == 1
    server.clock.advance(61)
    server.connections.record_full()
    assert server.lines == 2


@pytest.mark.parametrize(("asked", "soft", "most"), [(10_000, 65_536, 10_000), (10_000, 1_024, 768), (500, 1_024, 500)])
def test_connections_stay_well_below_the_descriptors(
    asked: int, soft: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_connections(asked) == most


async def test_answer_that_is_not_read_makes_room_at_once() -> None:
    """Closing would wait until it has left, and each such client would stay beside the next."""
    async with Server(1).opened() as server, asyncio.timeout(30):
        with socket.create_connection(("127.0.0.1", server.port)) as deaf:
            deaf.sendall(GET % b"/big")
            await asyncio.to_thread(deaf.recv, 1)
            reader, writer = await server.connect()
            writer.write(GET % b"/")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
            await until(lambda: server.connections.open == 1)
            writer.close()


async def test_body_that_is_not_read_makes_room() -> None:
    async with Server(1).opened() as server, asyncio.timeout(30):
        reader, writer = await server.connect()
        writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n")
        await reader.readuntil(b"hello")
        other_reader, other = await server.connect()
        other.write(GET % b"/")
        assert (await other_reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        assert await reader.read() == b""
        for each in (writer, other):
            each.close()


async def test_client_that_has_its_share_makes_room_for_itself() -> None:
    by_address = ConnectionsByAddress(2, Addresses())
    async with Server(10, by_address).opened() as server, asyncio.timeout(30):
        stranger_reader, stranger = await server.connect("127.0.0.2")
        clients = [await server.connect() for _ in range(3)]
        assert await clients[0][0].read() == b""
        for reader, writer in (*clients[1:], (stranger_reader, stranger)):
            writer.write(GET % b"/")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        assert server.connections.idle_closed == 1
        # The share is free again with its connections.
        for _, writer in clients:
            writer.close()
        await until(lambda: server.connections.open == 1)
        reader, writer = await server.connect()
        writer.write(GET % b"/")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        for each in (writer, stranger):
            each.close()
        assert server.lines == 0


async def test_client_that_is_answered_on_all_of_its_share_is_refused_another() -> None:
    async with Server(10, ConnectionsByAddress(1, Addresses())).opened() as server, asyncio.timeout(30):
        busy_reader, busy = await server.connect()
        busy.write(GET % b"/much")
        await busy_reader.readuntil(b"\r\n\r\n")
        reader, writer = await server.connect()
        assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
        for each in (busy, writer):
            each.transport.abort()


async def test_proxy_has_no_share_as_its_clients_are_many() -> None:
    async with Server(10, ConnectionsByAddress(1, Addresses("127.0.0.1"))).opened() as server, asyncio.timeout(30):
        clients = [await server.connect() for _ in range(5)]
        for reader, writer in clients:
            writer.write(GET % b"/")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
            writer.close()
