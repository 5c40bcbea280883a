"""A process from its start to its exit, in the one shape that all have."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from services.chassis.process import memory, pulse
from services.chassis.process import serving as process_serving
from services.chassis.process.serving import Process, serving
from services.chassis.process.settings import ServiceSettings
from services.chassis.rpc.channel import open_channel
from services.chassis.settings import OperationsListen
from services.chassis.telemetry.log import Log
from tests.services.chassis.playful_servicer import Servicer, verify


class PlayfulSettings(ServiceSettings, frozen=True, kw_only=True):
    playful_listen: str = ""
    playful_health_listen: str = ""
    playful_metrics_listen: OperationsListen = ""
    playful_console_listen: str = ""
    other_address: str = ""


@pytest.fixture(autouse=True)
def kept_from_this_process(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    """Leaves the warnings and the garbage collector of the tests as they are."""
    monkeypatch.setattr(process_serving, "open_log", lambda name, debug: log)
    monkeypatch.setattr(memory, "settle", lambda: None)


@pytest.fixture
def settings(socket_folder: Path) -> PlayfulSettings:
    return PlayfulSettings(data=socket_folder, playful_metrics_listen=f"unix:{socket_folder}/metrics.sock")


async def answer_of(listen: str, path: str) -> list[str]:
    """Returns the lines of an answer."""
    reader, writer = await asyncio.open_unix_connection(listen.removeprefix("unix:"))
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode().splitlines()


async def status_of(listen: str, path: str) -> str:
    return (await answer_of(listen, path))[0].split()[1]


async def test_process_shows_its_supervisor_that_it_works(
    settings: PlayfulSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    beaten, beating = os.pipe()
    monkeypatch.setenv(pulse.VARIABLE, str(beating))
    async with serving("playful", settings):
        assert os.read(beaten, 1)
    os.close(beaten)


async def test_full_disk_is_named_to_operators_until_it_has_room(settings: PlayfulSettings) -> None:
    async with serving("playful", settings) as process:
        await process.serve_operations(settings.playful_metrics_listen, list)
        note = process.full_disks.noting("playful.db")
        for is_full, text in ((True, "ready, disk full: playful.db"), (False, "ready")):
            await asyncio.to_thread(note, is_full)
            assert (await answer_of(settings.playful_metrics_listen, "/readyz"))[-1] == text


async def test_service_is_leaving_then_drained_then_closed(settings: PlayfulSettings) -> None:
    steps: list[str] = []
    drained = asyncio.Event()

    async def drain(delay_s: float) -> None:
        async with open_channel(f"unix:{settings.data}/run/playful.sock") as channel:
            stub: Any = HealthStub(channel)
            health = await stub.Check(health_pb2.HealthCheckRequest(service="legato.auth.v1.AuthService"))
            assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
            # Calls are still served.
            assert (await verify(channel, "good")).epoch == 7
        assert await status_of(settings.playful_metrics_listen, "/readyz") == "503"
        steps.append(f"drained {delay_s}")
        drained.set()

    async def upkeep() -> None:
        steps.append("upkeep")
        assert await status_of(settings.playful_metrics_listen, "/readyz") == "200"
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            assert drained.is_set()

    async with serving("playful", settings) as process:
        process.opened.callback(steps.append, "closed first")
        process.opened.callback(steps.append, "closed")
        process.in_background(upkeep)
        await process.serve_rpcs([Servicer()], drain=drain, drain_s=5.0, grace_s=0)
        steps.append("served")
    assert steps == ["upkeep", "drained 0.0", "served", "closed", "closed first"]


async def test_drain_that_takes_too_long_is_given_up(settings: PlayfulSettings) -> None:
    async def drain(delay_s: float) -> None:
        await asyncio.Event().wait()

    async def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async with serving("playful", settings) as process:
        process.in_background(stop)
        await process.serve_rpcs([Servicer()], drain=drain, drain_s=0.01, grace_s=0)


async def test_work_that_a_stop_overtakes_is_cancelled(settings: PlayfulSettings) -> None:
    cancelled = asyncio.Event()

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def nothing() -> None:
        pass

    async with serving("playful", settings) as process:
        assert await process.done_before_stop(nothing())
        assert not await process.done_before_stop(work())
        assert process.is_leaving
        await cancelled.wait()


async def test_other_services_are_in_the_data_folder_unless_they_have_an_address(
    settings: PlayfulSettings,
) -> None:
    async with serving("playful", settings) as process:
        assert process.address_of("other") == f"unix:{settings.data}/run/other.sock"
        given = PlayfulSettings(data=settings.data, other_address="10.0.0.1:7000")
        assert Process("playful", given, process.opened).address_of("other") == "10.0.0.1:7000"
