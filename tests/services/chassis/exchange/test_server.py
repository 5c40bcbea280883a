"""Those who answer on an exchange: whom they wait for, when they are ended, and how they go away."""

import asyncio
from pathlib import Path

import pytest

from legato_protos.router.v1 import router_pb2 as router
from legato_protos.router.v1 import router_pb2_grpc
from legato_protos.type.v1 import exchange_pb2 as pb
from legato_protos.type.v1.exchange_pb2 import Item
from services.chassis.exchange import server as session
from services.chassis.exchange.client import ExchangeClient
from services.chassis.exchange.outbox import MESSAGE_OVERHEAD_BYTES, WINDOW_BYTES
from services.chassis.rpc.channel import open_channel
from tests.services.chassis.exchange.talker import Serve, Talker, ask, opening


async def test_cancelled_call_ends_its_handler(client: ExchangeClient, talker: Talker) -> None:
    call = client.open("Chat", opening("wait"), router.ChatResponse)
    await ask(client, "after the opening")
    call.cancel()
    async with asyncio.timeout(60):
        await talker.left.wait()


async def test_reader_who_stops_holds_up_its_own_call_alone(client: ExchangeClient, talker: Talker) -> None:
    piece_bytes = 16 * 1024
    stalled = client.open("Chat", opening(pieces=100, piece_bytes=piece_bytes), router.ChatResponse)
    assert await ask(client, "control still gets through") == "control still gets through"
    async with asyncio.timeout(60):
        while talker.sent * piece_bytes < WINDOW_BYTES:
            await asyncio.sleep(0.01)
    for _ in range(5):
        await ask(client, "and time passes")
    assert talker.sent * piece_bytes <= WINDOW_BYTES + piece_bytes
    pieces = 0
    while await stalled.receive() is not None:
        pieces += 1
    assert pieces == 100


async def test_small_pieces_count_as_what_they_take_while_they_wait(client: ExchangeClient, talker: Talker) -> None:
    most_pieces, stalled_at = WINDOW_BYTES // MESSAGE_OVERHEAD_BYTES, -1
    stalled = client.open("Chat", opening(pieces=2 * most_pieces), router.ChatResponse)
    async with asyncio.timeout(30):
        while talker.sent == 0 or talker.sent != stalled_at:
            stalled_at = talker.sent
            await ask(client, "time passes")
            await asyncio.sleep(0.2)
    assert 0 < talker.sent <= most_pieces
    pieces = 0
    while await stalled.receive() is not None:
        pieces += 1
    assert pieces == 2 * most_pieces


async def test_server_that_goes_away_takes_no_new_calls_and_finishes_the_old(
    client: ExchangeClient, talker: Talker
) -> None:
    call = client.open("Chat", opening("wait", pieces=3), router.ChatResponse)
    await ask(client, "open")
    draining = asyncio.create_task(talker.exchange.drain())
    async with asyncio.timeout(60):
        while client.usable:
            await asyncio.sleep(0.01)
        assert not draining.done()
        talker.release.set()
        pieces = 0
        while await call.receive() is not None:
            pieces += 1
        await draining
    assert pieces == 3


async def test_drain_waits_until_every_client_has_heard_of_it(client: ExchangeClient, talker: Talker) -> None:
    """Every call opened before that is known, and none is opened after."""
    async with asyncio.timeout(60):
        await ask(client, "open")
        assert client.usable
        await talker.exchange.drain()
    assert not client.usable


async def test_all_that_was_said_arrives_before_an_exchange_is_closed(client: ExchangeClient, talker: Talker) -> None:
    """More than its reader has room for at once, so that some of it still waits when the call has ended."""
    call = client.open("Chat", opening(pieces=200), router.ChatResponse)
    async with asyncio.timeout(20):
        assert await call.receive() is not None
        draining = asyncio.create_task(talker.exchange.drain())
        pieces = 1
        while await call.receive() is not None:
            pieces += 1
        await draining
        await talker.exchange.close()
    assert pieces == 200


async def test_process_that_ends_does_not_wait_for_clients_who_come_back(
    socket_folder: Path, serve: Serve, talker: Talker
) -> None:
    """Clients take turns: one is there at any time."""

    async def come_again_and_again(stub: "router_pb2_grpc.RouterServiceAsyncStub", first_after_s: float) -> None:
        await asyncio.sleep(first_after_s)
        while True:
            async for _ in stub.Exchange():
                pass

    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(60):
        stub = router_pb2_grpc.RouterServiceStub(channel)
        clients = [asyncio.create_task(come_again_and_again(stub, turn * 0.3)) for turn in range(3)]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(60):
            await talker.exchange.close()
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


ALIVE = Item(kind=pb.ITEM_KIND_ALIVE)
LOST_SIGNS = 10


@pytest.fixture
def quick_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence is noticed after one second, which a busy machine hardly ever sleeps."""
    monkeypatch.setattr(session, "ALIVE_EVERY_S", 0.1)
    monkeypatch.setattr(session, "LOST_SIGNS", LOST_SIGNS)


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
        for _ in range(3 * LOST_SIGNS):
            await stream.write(router.ExchangeRequest(items=[ALIVE]))
            await asyncio.sleep(0.05)
        assert not talker.left.is_set()


@pytest.mark.usefixtures("quick_signs", "serve")
async def test_caller_that_never_said_that_it_lives_may_be_silent(socket_folder: Path, talker: Talker) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(60):
        stream = router_pb2_grpc.RouterServiceStub(channel).Exchange()
        chat = Item(call_id=1, kind=pb.ITEM_KIND_OPEN, method="Chat", payload=opening("wait").SerializeToString())
        await stream.write(router.ExchangeRequest(items=[chat]))
        await asyncio.sleep(0.12 * LOST_SIGNS)
        assert not talker.left.is_set()
