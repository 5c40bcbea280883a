"""Messages that come while an exchange rests leave as one."""

import asyncio
from pathlib import Path

import pytest

from protos.router.v1 import router_pb2 as router
from protos.router.v1 import router_pb2_grpc
from services.chassis.exchange import ExchangeClient
from services.chassis.exchange import send_delay as rests
from services.chassis.rpc.channel import open_channel
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import BATCH_BOUNDS, Histogram
from tests.services.chassis.exchange.talker import Serve, ask

NAMES = ["a", "b", "c"]


class Sizes(Histogram):
    def __init__(self) -> None:
        super().__init__(BATCH_BOUNDS)
        self.seen: list[float] = []

    def observe(self, value: float) -> None:
        self.seen.append(value)


class LongDelay:
    def __init__(self) -> None:
        self.has_begun = asyncio.Event()
        self.is_over = asyncio.Event()

    async def __call__(self, calls: int) -> None:
        self.has_begun.set()
        await self.is_over.wait()


async def test_questions_leave_together(socket_folder: Path, serve: Serve, log: Log) -> None:
    sizes, delay = Sizes(), LongDelay()
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(30):
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, log, sizes, delay=delay)
        client.start()
        await delay.has_begun.wait()
        waiting = [asyncio.create_task(ask(client, name, timeout_s=30)) for name in NAMES]
        await asyncio.sleep(0)
        delay.is_over.set()
        assert await asyncio.gather(*waiting) == NAMES
        await client.close()
    assert max(sizes.seen) >= len(NAMES)


@pytest.mark.parametrize(("calls", "delay_s"), [(1, None), (39, None), (40, 0.001), (100, 0.0025), (1_000, 0.005)])
async def test_rest_is_as_long_as_many_share_it_and_none_where_few_do(
    calls: int, delay_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await rests.delay_send(calls)
    assert slept == ([] if delay_s is None else [pytest.approx(delay_s)])
