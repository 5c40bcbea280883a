"""The use of the queue that a server publishes."""

import asyncio
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from services.chassis.errors import LegatoError
from services.chassis.load.admission import Gate
from services.chassis.telemetry.log import Log
from services.router.models.queue_watch import STALE_S, QueueGauge, QueueWatch
from services.router.routes.target import MOST_WAITING
from tests.services.router.harness import running_router, target
from tests.support.fakes import FakeClock
from tests.support.upstreams.openai import Reply, Upstream


class MadeUp(QueueGauge):
    """A gauge that says what it is told."""

    def __init__(self, readings: list[float | None]) -> None:
        self.readings: Iterator[float | None] = iter(readings)

    async def read(self) -> float | None:
        return next(self.readings, 0.0)

    async def aclose(self) -> None:
        pass


@pytest.fixture
def gate(clock: FakeClock) -> Gate:
    return Gate("The model", clock)


@pytest.fixture
def watch(gate: Gate, clock: FakeClock) -> QueueWatch:
    return QueueWatch(MadeUp([]), gate, clock)


def fill(gate: Gate, chats: int) -> None:
    for _ in range(chats):
        gate.acquire("key")


def is_refused(gate: Gate) -> bool:
    try:
        gate.acquire("key").release()
    except LegatoError:
        return True
    return False


def test_queue_within_what_may_wait_refuses_no_chat(gate: Gate, watch: QueueWatch) -> None:
    fill(gate, 40)
    watch.record(MOST_WAITING)
    assert gate.announced_limit == math.inf


def test_as_many_fewer_may_run_as_wait_too_many(gate: Gate, watch: QueueWatch) -> None:
    fill(gate, 40)
    watch.record(24)
    assert gate.announced_limit == 40 - (24 - MOST_WAITING)
    assert is_refused(gate)


def test_server_that_others_have_filled_is_sent_one_at_a_time(gate: Gate, watch: QueueWatch) -> None:
    watch.record(1000)
    fill(gate, 1)
    assert is_refused(gate)


def test_limit_is_gone_after_two_looks_at_an_empty_queue(gate: Gate, watch: QueueWatch) -> None:
    fill(gate, 40)
    watch.record(40)
    watch.record(0)
    assert 0 < gate.announced_limit < math.inf
    watch.record(0)
    assert not is_refused(gate)


def test_limit_follows_a_queue_that_is_short_enough(gate: Gate, watch: QueueWatch) -> None:
    fill(gate, 40)
    watch.record(24)
    watch.record(3)
    assert gate.announced_limit == 40 + MOST_WAITING - 3


def test_gauge_that_cannot_be_read_refuses_no_chat(gate: Gate, watch: QueueWatch, clock: FakeClock) -> None:
    fill(gate, 40)
    watch.record(None)
    assert not is_refused(gate)
    watch.record(40)
    watch.record(None)
    assert is_refused(gate)
    clock.advance(STALE_S)
    watch.record(None)
    assert not is_refused(gate)


async def test_queue_is_looked_at_while_chats_are_there_and_no_longer(gate: Gate, clock: FakeClock) -> None:
    watch = QueueWatch(MadeUp([40.0]), gate, clock)
    place = gate.acquire("key")
    watch.wake()
    async with asyncio.timeout(60):
        while gate.announced_limit == math.inf:
            await asyncio.sleep(0.01)
        place.release()
        while watch._task is not None:
            await asyncio.sleep(0.01)
    assert gate.announced_limit == math.inf
    await watch.aclose()


class Crowded(Upstream):
    """A server that says how many wait."""

    waiting = 0

    async def start(self, port: int = 0) -> None:
        await super().start(port)
        app = web.Application()
        app.router.add_get("/metrics", self._tell)
        self._metrics = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._metrics.setup()
        await web.TCPSite(self._metrics, "127.0.0.1", 0).start()
        self.metrics_url = f"http://127.0.0.1:{self._metrics.addresses[0][1]}/metrics"

    async def stop(self) -> None:
        await self._metrics.cleanup()
        await super().stop()

    async def _tell(self, request: web.Request) -> web.Response:
        return web.Response(text=f'vllm:num_requests_waiting{{model_name="main-model"}} {self.waiting}\n')


async def test_model_whose_server_says_that_many_wait_is_refused_until_they_do_not(
    socket_folder: Path, log: Log
) -> None:
    async with Crowded() as upstream:
        main = replace(target("main"), queue_metrics_url=upstream.metrics_url)
        async with running_router(socket_folder, log, {main: upstream}) as router:
            upstream.waiting = 100
            upstream.replies.append(Reply(contents=["Hello"], stall_after=2))
            running = router.open()
            assert await running.receive()

            async def is_full() -> bool:
                try:
                    await router.ask()
                except LegatoError:
                    return True
                return False

            async with asyncio.timeout(60):
                while not await is_full():
                    await asyncio.sleep(0.02)
                upstream.waiting = 0
                while await is_full():
                    await asyncio.sleep(0.02)
            running.cancel()
