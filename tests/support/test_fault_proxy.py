"""The proxy before a server that answers each line with the line."""

import asyncio
import gc
import socket
import struct
import warnings
from collections.abc import AsyncIterator

import pytest

from tests.support.fault_proxy import CUT, STALL, Delay, FaultProxy

# Far longer than anything takes that comes at all.
WAIT_TIMEOUT_S = 60.0
# Long enough for what is on its way to arrive: what has not come by then was swallowed.
SILENCE_S = 0.3


class Echo:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.ends = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
        except ConnectionError:
            pass
        finally:
            self.ends += 1
            writer.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, proxy: FaultProxy) -> "Client":
        host, _, port = proxy.address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def say(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    async def hear(self) -> bytes:
        """The next line; empty at the end of the connection."""
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            return (await self._reader.readline()).rstrip(b"\n")

    async def hears_nothing(self) -> bool:
        try:
            async with asyncio.timeout(SILENCE_S):
                return not await self._reader.readline()
        except TimeoutError:
            return True

    def reset(self) -> None:
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.close()

    def leave(self) -> None:
        self._writer.close()


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[FaultProxy]:
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with FaultProxy(f"{host}:{port}") as proxy:
        yield proxy
    server.close()


async def test_without_a_fault_everything_passes_and_so_does_the_end(proxy: FaultProxy, echo: Echo) -> None:
    client = await Client.to(proxy)
    for line in (b"one", b"two"):
        client.say(line)
        assert await client.hear() == line
    client.leave()
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while not echo.ends or proxy.connections:
            await asyncio.sleep(0.01)


async def test_cut_breaks_what_is_open_and_refuses_what_is_new_until_it_is_healed(proxy: FaultProxy) -> None:
    client = await Client.to(proxy)
    client.say(b"one")
    await client.hear()
    proxy.set(CUT)
    with pytest.raises(ConnectionResetError):
        await client.hear()
    with pytest.raises(ConnectionError):
        await (await Client.to(proxy)).hear()
    proxy.heal()
    again = await Client.to(proxy)
    again.say(b"two")
    assert await again.hear() == b"two"
    again.leave()


async def test_client_that_resets_its_connection_is_gone_for_the_target_too(proxy: FaultProxy, echo: Echo) -> None:
    client = await Client.to(proxy)
    client.say(b"one")
    await client.hear()
    client.reset()
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while not echo.ends or proxy.connections:
            await asyncio.sleep(0.01)


async def test_stall_swallows_everything_without_a_word(proxy: FaultProxy, echo: Echo) -> None:
    client = await Client.to(proxy)
    proxy.set(STALL)
    client.say(b"one")
    assert await client.hears_nothing()
    assert echo.heard == []
    new = await Client.to(proxy)
    new.say(b"two")
    assert await new.hears_nothing()
    proxy.heal()
    client.say(b"three")
    assert await client.hears_nothing()
    healthy = await Client.to(proxy)
    healthy.say(b"four")
    assert await healthy.hear() == b"four"
    for one in (client, new, healthy):
        one.leave()


async def test_one_direction_can_be_stalled_alone(proxy: FaultProxy, echo: Echo) -> None:
    client = await Client.to(proxy)
    proxy.set(STALL, "down")
    client.say(b"one")
    assert await client.hears_nothing()
    assert echo.heard == [b"one\n"]
    client.leave()


async def test_one_connection_can_be_stalled_alone(proxy: FaultProxy) -> None:
    first = await Client.to(proxy)
    first.say(b"one")
    await first.hear()
    [connection] = proxy.connections
    second = await Client.to(proxy)
    connection.set(STALL)
    first.say(b"two")
    second.say(b"three")
    assert await second.hear() == b"three"
    assert await first.hears_nothing()
    for one in (first, second):
        one.leave()


async def test_what_is_delayed_comes_later_than_what_is_not(proxy: FaultProxy) -> None:
    late = await Client.to(proxy)
    late.say(b"one")
    await late.hear()
    [connection] = proxy.connections
    prompt = await Client.to(proxy)
    connection.set(Delay(SILENCE_S))
    late.say(b"two")
    arrived = []
    for client in (late, prompt):
        hearing = asyncio.ensure_future(client.hear())
        hearing.add_done_callback(lambda heard: arrived.append(heard.result()))
    prompt.say(b"three")
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while len(arrived) < 2:
            await asyncio.sleep(0.01)
    assert arrived == [b"three", b"two"]
    for one in (late, prompt):
        one.leave()


async def test_jitter_changes_no_order(proxy: FaultProxy) -> None:
    proxy.set(Delay(0.0, jitter_s=0.02))
    client = await Client.to(proxy)
    lines = [b"%d" % number for number in range(50)]
    for line in lines:
        client.say(line)
        await asyncio.sleep(0.001)
    assert [await client.hear() for _ in lines] == lines
    client.leave()


async def test_target_that_is_away_is_told_by_a_reset() -> None:
    async with FaultProxy("unix:/nonexistent/socket") as nowhere:
        with pytest.raises(ConnectionError):
            await (await Client.to(nowhere)).hear()


def test_nothing_stays_open_of_a_client_that_does_not_read() -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(bytes(65536))
                await writer.drain()
        except ConnectionError:
            writer.transport.abort()

    def unwritten_bytes(proxy: FaultProxy) -> int:
        writers = [writer for connection in proxy.connections for writer in connection._writers]
        return sum(writer.transport.get_write_buffer_size() for writer in writers)

    async def leave_unread(client: socket.socket) -> None:
        server = await asyncio.start_server(flood, "127.0.0.1", 0)
        _, port = server.sockets[0].getsockname()
        async with FaultProxy(f"127.0.0.1:{port}") as proxy:
            host, _, port = proxy.address.rpartition(":")
            client.connect((host, int(port)))
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                while unwritten_bytes(proxy) < 65536:
                    await asyncio.sleep(0.01)
        server.close()
        # The server learns that the client is gone.
        await asyncio.sleep(SILENCE_S)

    with socket.socket() as client, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asyncio.run(leave_unread(client))
        gc.collect()
    assert [str(each.message) for each in warned] == []
