"""A client that is cut off without a word."""

import asyncio
from pathlib import Path

import pytest

from protos.router.v1 import router_pb2 as router
from protos.router.v1 import router_pb2_grpc
from protos.type.v1 import exchange_pb2 as pb
from protos.type.v1.exchange_pb2 import Item
from services.chassis.exchange import session
from services.chassis.rpc.channel import open_channel
from tests.services.chassis.exchange.talker import Talker, opening

ALIVE = Item(kind=pb.ITEM_KIND_ALIVE)


@pytest.fixture
def quick_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed after one second, which a busy machine hardly ever sleeps."""
    monkeypatch.setattr(session, "ALIVE_EVERY_S", 0.1)


@pytest.mark.usefixtures("quick_signs", "serve")
async def test_calls_of_a_client_that_falls_silent_end(socket_folder: Path, talker: Talker) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(60):
        stream = router_pb2_grpc.RouterServiceStub(channel).Exchange()
        chat = Item(call_id=1, kind=pb.ITEM_KIND_OPEN, method="Chat", payload=opening("wait").SerializeToString())
        await stream.write(router.ExchangeRequest(items=[ALIVE, chat]))
        await talker.left.wait()


@pytest.mark.usefixtures("quick_signs", "serve")
async def test_client_that_shows_that_it_lives_is_served_for_as_long_as_it_takes(
    socket_folder: Path, talker: Talker
) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(60):
        stream = router_pb2_grpc.RouterServiceStub(channel).Exchange()
        chat = Item(call_id=1, kind=pb.ITEM_KIND_OPEN, method="Chat", payload=opening("wait").SerializeToString())
        await stream.write(router.ExchangeRequest(items=[chat]))
        for _ in range(3 * session.SILENT_SIGNS):
            await stream.write(router.ExchangeRequest(items=[ALIVE]))
            await asyncio.sleep(0.05)
        assert not talker.left.is_set()


@pytest.mark.usefixtures("quick_signs", "serve")
async def test_caller_that_never_said_that_it_lives_may_be_silent(socket_folder: Path, talker: Talker) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(60):
        stream = router_pb2_grpc.RouterServiceStub(channel).Exchange()
        chat = Item(call_id=1, kind=pb.ITEM_KIND_OPEN, method="Chat", payload=opening("wait").SerializeToString())
        await stream.write(router.ExchangeRequest(items=[chat]))
        await asyncio.sleep(0.12 * session.SILENT_SIGNS)
        assert not talker.left.is_set()
