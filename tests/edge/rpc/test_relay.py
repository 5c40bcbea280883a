"""Programs' connections on their way to gRPC: how many there are, whose they are, and what one of them may cancel."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from edge.rpc.relay import FREE_RESETS, RESETS_PER_S, ProgramRelay
from services.chassis.http.connection_limit import ConnectionLimit
from services.chassis.rpc.listening import listen_for_rpcs
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.chat_harness import end, piece, saying
from tests.edge.rpc.rpc_harness import KEY, RpcHarness, TrackedKey
from tests.support.raw_grpc import RawGrpc, connected
from tests.support.waiting import until

STREAM = "/legato.chat.v1.ChatService/Stream"
METADATA = dict(KEY)
ECHO = "/test.Echo/Echo"


class CountedKeys(TrackedKey):
    """Counts the calls that have begun."""

    begun = 0

    async def identify(self, scope: Any, needed: Any) -> Any:
        self.begun += 1
        return await super().identify(scope, needed)


class Echo:
    """A gRPC server behind a relay, which answers with what it was sent, and notes where calls come from."""

    def __init__(self, listener: socket.socket, served_at: str, connections: ConnectionLimit) -> None:
        self.relay = ProgramRelay(listener, served_at, connections)
        self.clients: list[Any] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        handlers: dict[str, Any] = {"Echo": grpc.unary_unary_rpc_method_handler(self._echo)}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", handlers)])
        self._server.add_insecure_port(served_at)

    async def start(self) -> None:
        await self._server.start()
        await self.relay.start()

    async def close(self) -> None:
        self.relay.stop_listening()
        await self._server.stop(0)
        self.relay.close()

    async def _echo(self, request: bytes, context: Any) -> bytes:
        connection = self.relay.find(context.peer())
        assert connection is not None
        connection.begin_call()
        self.clients.append(connection.client)
        await self.may_answer.wait()
        connection.end_call()
        return request


@pytest.fixture
def connections(log: Log) -> ConnectionLimit:
    return ConnectionLimit(2, SystemClock(), log)


@pytest.fixture(params=["tcp", "unix"])
async def echo(
    request: pytest.FixtureRequest, socket_folder: Path, connections: ConnectionLimit
) -> AsyncIterator[tuple[Echo, str]]:
    """A server, and its address."""
    address = f"unix:{socket_folder}/echo.sock"
    listener = listen_for_rpcs("127.0.0.1:0" if request.param == "tcp" else address)
    if request.param == "tcp":
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    server = Echo(listener, f"unix:{socket_folder}/inner.sock", connections)
    await server.start()
    yield server, address
    await server.close()


def open_channel(address: str) -> grpc.aio.Channel:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    return grpc.aio.insecure_channel(address, options=options)


async def ask(channel: grpc.aio.Channel, sent: bytes, **how: Any) -> bytes:
    call: Any = channel.unary_unary(ECHO)
    answer: bytes = await call(sent, **how)
    return answer


async def test_what_passes_arrives_whole_in_both_directions(echo: tuple[Echo, str]) -> None:
    async with open_channel(echo[1]) as channel:
        sent = bytes(range(256)) * 40_000
        assert await asyncio.gather(*(ask(channel, sent) for _ in range(3))) == [sent] * 3


async def test_calls_tell_where_their_connection_comes_from(echo: tuple[Echo, str]) -> None:
    server, address = echo
    async with open_channel(address) as channel:
        await ask(channel, b"Hi")
    [client] = server.clients
    assert client is None if address.startswith("unix:") else client[0] == "127.0.0.1"


async def test_idle_connection_is_closed_for_another_and_one_with_calls_is_not(
    echo: tuple[Echo, str], connections: ConnectionLimit
) -> None:
    server, address = echo
    async with open_channel(address) as busy, open_channel(address) as idle, open_channel(address) as new:
        await ask(idle, b"Hi")
        server.may_answer.clear()
        running = asyncio.create_task(ask(busy, b"running"))
        await until(lambda: len(server.clients) == 2)
        waiting = asyncio.create_task(ask(new, b"new", wait_for_ready=True))
        await until(lambda: len(server.clients) == 3)
        server.may_answer.set()
        assert [await running, await waiting] == [b"running", b"new"]
    assert (connections.idle_closed, connections.refused) == (1, 0)
    await until(lambda: connections.open == 0)


async def test_connection_ends_with_its_other_side(echo: tuple[Echo, str]) -> None:
    server, address = echo
    async with open_channel(address) as channel:
        await ask(channel, b"Hi")
        server.relay.close()
        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await ask(channel, b"Hi")
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_connections_that_come_while_nobody_takes_them_are_taken_by_the_next(
    socket_folder: Path, connections: ConnectionLimit
) -> None:
    """As where a supervisor holds the socket, and its edge starts again."""
    address, inner = f"unix:{socket_folder}/echo.sock", f"unix:{socket_folder}/inner.sock"
    with listen_for_rpcs(address) as held:
        first = Echo(held.dup(), inner, connections)
        await first.start()
        async with open_channel(address) as channel:
            await ask(channel, b"Hi")
            await first.close()
            # A call on a connection whose end has not been noticed would fail.
            await until(lambda: channel.get_state() is not grpc.ChannelConnectivity.READY)
            waiting = asyncio.create_task(ask(channel, b"still there?"))
            second = Echo(held.dup(), inner, connections)
            await second.start()
            assert await waiting == b"still there?"
            await second.close()


async def test_connection_that_cancels_its_calls_may_do_so_at_a_limited_rate(rpc_harness: RpcHarness) -> None:
    keys = CountedKeys(rpc_harness.chats)
    await rpc_harness.start(principals=keys)
    loop = asyncio.get_running_loop()

    async def cancel_calls(client: RawGrpc) -> None:
        for begun in range(100, 100_000, 100):
            streams = [client.open(STREAM, METADATA) for _ in range(100)]
            # gRPC itself drops those that are cancelled before they begin.
            while keys.begun < begun:
                await asyncio.sleep(0.001)
            await client.reset(streams)

    async with connected(rpc_harness.path) as client:
        began_at_s = loop.time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(cancel_calls(client), 4)
        assert keys.begun <= FREE_RESETS + RESETS_PER_S * (loop.time() - began_at_s) + 200


async def test_streams_beyond_the_limit_of_a_connection_are_refused_by_grpc(rpc_harness: RpcHarness) -> None:
    keys = CountedKeys(rpc_harness.chats)
    await rpc_harness.start(principals=keys, options=[("grpc.max_concurrent_streams", 10)])
    async with connected(rpc_harness.path) as client:
        streams = [client.open(STREAM, METADATA) for _ in range(500)]
        await client.reset(streams)
        await client.catch_up()
        assert await rpc_harness.stream()
    assert keys.begun < 100


async def test_caller_may_ping_every_second(rpc_harness: RpcHarness) -> None:
    """Node's keepalive, for example; gRPC's own limit is one ping in five minutes."""
    await rpc_harness.start()
    async with connected(rpc_harness.path) as client:
        for _ in range(5):
            await asyncio.sleep(1.05)
            await client.ping()
        assert (client.is_closed, client.goaways) == (False, [])


async def test_connection_ages_without_cutting_what_runs_on_it(rpc_harness: RpcHarness) -> None:
    goes_on = asyncio.Event()

    async def script(conversation: Any) -> None:
        await saying(piece("Hel", 1))(conversation)
        await goes_on.wait()
        await saying(piece("lo", 2), end(2))(conversation)

    await rpc_harness.start(script, options=[("grpc.max_connection_age_ms", 200)])
    answer = asyncio.create_task(rpc_harness.stream())
    async with connected(rpc_harness.path) as client:
        while not client.goaways:
            await asyncio.sleep(0.05)
    goes_on.set()
    assert await answer == ("Hello", None)
