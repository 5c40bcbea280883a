import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from legato_protos.router.v1 import router_pb2 as router
from legato_protos.router.v1 import router_pb2_grpc
from services.chassis.exchange.client import ExchangeClient
from services.chassis.rpc.channel import open_channel
from services.chassis.telemetry.log import Log
from tests.services.chassis.exchange.talker import Serve, Talker
from tests.support.tracing import RecordedSpan


@pytest.fixture
def spans() -> list[RecordedSpan]:
    return []


@pytest.fixture
async def talker(log: Log, spans: list[RecordedSpan]) -> Talker:
    return Talker(log, spans)


@pytest.fixture
async def serve(socket_folder: Path, talker: Talker, log: Log) -> AsyncIterator[Serve]:
    serve = Serve(f"unix:{socket_folder}/router.sock", talker, log)
    await serve.start()
    yield serve
    await serve.stop()


@pytest.fixture
async def client(socket_folder: Path, serve: Serve, log: Log) -> AsyncIterator[ExchangeClient]:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        client = ExchangeClient("router", stub.Exchange, router.ExchangeRequest, log)
        client.start()
        async with asyncio.timeout(60):
            await client.connected()
        yield client
        await client.close()
