"""A conversation as an ordinary RPC of its own."""

import asyncio
import contextlib
from pathlib import Path

from legato_protos.router.v1 import router_pb2 as router
from legato_protos.router.v1 import router_pb2_grpc
from services.chassis.exchange.client import ExchangeClient
from services.chassis.exchange.rpc import RpcCall
from services.chassis.rpc.channel import open_channel
from tests.services.chassis.exchange.talker import Serve, Talker, opening
from tests.support.leftovers import nothing_is_left


async def test_ordinary_call_serves_the_same_conversation(socket_folder: Path, client: ExchangeClient) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        call: RpcCall[router.ChatResponse] = RpcCall("router", stub.Chat(), opening(pieces=5))
        numbers = []
        while (response := await call.receive()) is not None:
            numbers.append(response.output_tokens)
        assert numbers == [0, 1, 2, 3, 4]


async def test_all_that_was_said_is_heard_also_by_one_who_speaks_when_the_other_has_ended(
    socket_folder: Path, serve: Serve, talker: Talker
) -> None:
    """Credit that was asked for may be given when the answer is already over."""
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel, asyncio.timeout(60):
        stub = router_pb2_grpc.RouterServiceStub(channel)
        call: RpcCall[router.ChatResponse] = RpcCall("router", stub.Chat(), opening("grants"))
        for tokens in (1, 2, 3, 0):
            call.send(router.ChatRequest(grant=router.Grant(output_tokens=tokens)))
            while tokens and tokens not in talker.grants:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        call.send(router.ChatRequest(grant=router.Grant(output_tokens=4)))
        await asyncio.sleep(0.1)
        heard = [await call.receive() for _ in range(3)]
        call.cancel()
    assert [response.output_tokens for response in heard if response is not None] == [1, 2, 3]


async def test_ordinary_call_that_is_cancelled_ends_its_handler(
    socket_folder: Path, client: ExchangeClient, talker: Talker
) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        call: RpcCall[router.ChatResponse] = RpcCall("router", stub.Chat(), opening("grants"))
        call.send(router.ChatRequest(grant=router.Grant(output_tokens=1)))
        assert await call.receive() is not None
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            async with asyncio.timeout(60):
                await talker.left.wait()
        assert talker.left.is_set()


async def test_nothing_is_left_of_an_ordinary_call_that_was_not_read_to_its_end(
    socket_folder: Path, serve: Serve
) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        async with nothing_is_left():
            call: RpcCall[router.ChatResponse] = RpcCall("router", stub.Chat(), opening(pieces=5))
            assert await call.receive() is not None
            call.cancel()
            del call
