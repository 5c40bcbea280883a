import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from legato_protos.auth.v1 import auth_pb2, auth_pb2_grpc
from services.chassis.errors import LegatoError, Reason, forget_origin
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer, on_stop_signal
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from tests.services.chassis.playful_servicer import CANARY, Servicer, verify
from tests.support.leftovers import nothing_is_left


@asynccontextmanager
async def serving(folder: Path, log: Log) -> AsyncIterator[tuple[RpcServer, Servicer, grpc.aio.Channel]]:
    servicer = Servicer()
    server = RpcServer(f"unix:{folder}/auth.sock", [servicer], log)
    await server.start()
    try:
        async with asyncio.timeout(20), open_channel(f"unix:{folder}/auth.sock") as channel:
            yield server, servicer, channel
    finally:
        await server.stop(0)


async def watch(channel: grpc.aio.Channel, *ping_nos: int) -> list[int]:
    """Sends the pings and gives back which were answered."""

    async def pings() -> AsyncIterator[auth_pb2.WatchRequest]:
        for ping_no in ping_nos:
            yield auth_pb2.WatchRequest(ping_no=ping_no)

    call = auth_pb2_grpc.AuthServiceStub(channel).Watch(pings())
    try:
        with errors_of("Auth"):
            return [answer.echoed_ping_no async for answer in call]
    finally:
        # A server is not told of a stream that is merely dropped.
        call.cancel()


async def test_a_refusal_of_a_call_arrives_with_its_reason(socket_folder: Path, log: Log) -> None:
    async with serving(socket_folder, log) as (_, _, channel):
        with pytest.raises(LegatoError) as refused:
            await verify(channel, "refused")

    assert (refused.value.reason, refused.value.message) == (Reason.KEY_INVALID, "The key is not valid.")
    assert refused.value.retry_after_s == 3


async def test_a_refusal_carries_the_grpc_code_for_callers_that_do_not_know_reasons(
    socket_folder: Path, log: Log
) -> None:
    async with serving(socket_folder, log) as (_, _, channel):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await auth_pb2_grpc.AuthServiceStub(channel).Verify(auth_pb2.VerifyRequest(api_key="refused"))

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(("after_s", "told"), [(None, None), (1.5, "1500"), (3600, "-1")])
async def test_clients_that_repeat_calls_are_told_when(
    socket_folder: Path, log: Log, after_s: float | None, told: str | None
) -> None:
    async with serving(socket_folder, log) as (_, servicer, channel):
        servicer.retry_after_s = after_s
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await auth_pb2_grpc.AuthServiceStub(channel).Verify(auth_pb2.VerifyRequest(api_key="refused"))
    assert dict(refused.value.trailing_metadata() or ()).get("grpc-retry-pushback-ms") == told


async def test_a_refusal_in_a_stream_arrives_after_what_was_sent_before(socket_folder: Path, log: Log) -> None:
    async with serving(socket_folder, log) as (_, _, channel):
        assert await watch(channel, 1, 1) == [1, 1]
        with pytest.raises(LegatoError) as refused:
            await watch(channel, 1, 2)

    assert (refused.value.reason, refused.value.message) == (Reason.SATURATED, "Later, please.")


async def test_an_unknown_failure_is_internal_and_its_text_stays_here(
    socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    async with serving(socket_folder, log) as (_, _, channel):
        for attempt in (verify(channel, "broken"), watch(channel, 3)):
            with pytest.raises(LegatoError) as failed:
                await attempt
            assert failed.value.reason is Reason.INTERNAL
            assert CANARY not in failed.value.message

    assert log_text().count("RuntimeError at ") == 2
    assert CANARY not in log_text()


async def test_a_service_that_is_not_there_is_unavailable(socket_folder: Path) -> None:
    async with open_channel(f"unix:{socket_folder}/nothing.sock") as channel:
        with pytest.raises(LegatoError) as failed:
            await verify(channel, "any")

    assert failed.value.reason is Reason.UNAVAILABLE


async def test_a_client_that_leaves_ends_its_handler_and_disturbs_no_other(socket_folder: Path, log: Log) -> None:
    async with serving(socket_folder, log) as (_, servicer, channel):
        call = asyncio.create_task(verify(channel, "endless"))
        await servicer.waiting.wait()
        call.cancel()
        await servicer.cancelled.wait()
        assert (await verify(channel, "good")).epoch == 7


async def test_a_client_that_leaves_a_stream_ends_its_handler_and_disturbs_no_other(
    socket_folder: Path, log: Log
) -> None:
    async with serving(socket_folder, log) as (_, servicer, channel):
        call = asyncio.create_task(watch(channel, 1, 4))
        await servicer.waiting.wait()
        call.cancel()
        await servicer.cancelled.wait()
        assert await watch(channel, 1) == [1]


async def test_a_handler_that_is_cancelled_inside_leaves_no_client_waiting(socket_folder: Path, log: Log) -> None:
    async with serving(socket_folder, log) as (_, _, channel):
        for attempt in (verify(channel, "cancelled"), watch(channel, 5)):
            with pytest.raises(LegatoError) as failed:
                await attempt
            assert failed.value.reason is Reason.UNAVAILABLE


async def test_a_call_that_is_refused_leaves_nothing_to_the_collector_of_garbage(socket_folder: Path, log: Log) -> None:
    async def ask_in_vain(channel: grpc.aio.Channel, key: str) -> None:
        try:
            await verify(channel, key)
        except LegatoError as error:
            forget_origin(error)

    async with serving(socket_folder, log) as (_, _, channel):
        for key in ("refused", "broken", "cancelled"):
            await ask_in_vain(channel, key)
            async with nothing_is_left(auth_pb2.VerifyRequest, LegatoError):
                for _ in range(5):
                    await ask_in_vain(channel, key)


async def test_a_server_that_stops_leaves_no_client_waiting(socket_folder: Path, log: Log) -> None:
    async with serving(socket_folder, log) as (server, servicer, channel):
        call = asyncio.create_task(verify(channel, "endless"))
        await servicer.waiting.wait()
        await server.stop(0.05)
        with pytest.raises(LegatoError) as failed:
            await call

    assert failed.value.reason is Reason.UNAVAILABLE


async def test_health_answers_for_the_process_and_for_each_service(socket_folder: Path, log: Log) -> None:
    async with serving(socket_folder, log) as (_, _, channel):
        health: Any = health_pb2_grpc.HealthStub(channel)
        for name in ("", "legato.auth.v1.AuthService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_server_that_is_asked_to_stop_says_so_before_it_ends(socket_folder: Path, log: Log) -> None:
    async with serving(socket_folder, log) as (server, servicer, channel):
        health: Any = health_pb2_grpc.HealthStub(channel)
        watching = health.Watch(health_pb2.HealthCheckRequest())
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.SERVING
        call = asyncio.create_task(verify(channel, "endless"))
        await servicer.waiting.wait()
        stopping = asyncio.create_task(server.stop(0.2))
        assert (await watching.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert not call.done()
        await stopping
        with pytest.raises(LegatoError):
            await call


async def test_a_tcp_listener_is_refused_unless_it_is_asked_for(log: Log) -> None:
    with pytest.raises(SettingsError, match="LEGATO_INSECURE_TCP"):
        RpcServer("127.0.0.1:0", [Servicer()], log)


async def test_a_tcp_listener_that_is_asked_for_serves_alone(log: Log) -> None:
    server = RpcServer("127.0.0.1:0", [Servicer()], log, insecure_tcp=True)
    await server.start()
    address = f"127.0.0.1:{server.port}"
    async with asyncio.timeout(20), open_channel(address) as channel:
        assert (await verify(channel, "good")).epoch == 7
    second = RpcServer(address, [Servicer()], log, insecure_tcp=True)
    with pytest.raises(SettingsError, match=address):
        await second.start()
    await server.stop(0)


async def test_an_address_that_cannot_be_listened_on_is_named(socket_folder: Path, log: Log) -> None:
    server = RpcServer(f"unix:{socket_folder}/missing/auth.sock", [Servicer()], log)

    with pytest.raises(SettingsError, match=r"missing/auth\.sock"):
        await server.start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_that_is_asked_for_before_it_is_awaited_is_not_lost(number: signal.Signals) -> None:
    asked = asyncio.Event()
    on_stop_signal(asked.set)
    os.kill(os.getpid(), number)
    async with asyncio.timeout(60):
        await asked.wait()
    asyncio.get_running_loop().remove_signal_handler(number)
