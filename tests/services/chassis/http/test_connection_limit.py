"""More connections than there is room for."""

import asyncio
import io
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.chassis.http.connection_limit import ConnectionLimit, most_connections
from services.chassis.telemetry.log import Log
from tests.services.chassis.http.hello_server import is_error_shape, new_server
from tests.support.fakes import FakeClock
from tests.support.waiting import until

GET = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"


class Server:
    def __init__(self, most: int) -> None:
        self.said = io.StringIO()
        self.clock = FakeClock()
        self.connections = ConnectionLimit(most, self.clock, Log("edge", self.said))
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

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


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
        assert server.connections.idle_closed.value == 2
        for _, writer in clients:
            writer.close()


async def test_nobody_who_is_being_answered_makes_room() -> None:
    async with Server(2).opened() as server, asyncio.timeout(30):
        busy = [await server.connect() for _ in range(2)]
        for reader, writer in busy:
            writer.write(GET % b"/much")
            await reader.readuntil(b"\r\n\r\n")
        reader, writer = await server.connect()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert is_error_shape(body)
        assert server.connections.refused.value == 1
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
        server.connections.note_full()
    assert server.lines == 1
    server.clock.advance(61)
    server.connections.note_full()
    assert server.lines == 2


@pytest.mark.parametrize(("asked", "soft", "most"), [(10_000, 65_536, 10_000), (10_000, 1_024, 768), (500, 1_024, 500)])
def test_connections_stay_well_below_the_descriptors(
    asked: int, soft: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_connections(asked) == most
