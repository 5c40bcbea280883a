"""A conversation as an ordinary RPC of its own."""

import asyncio
import contextlib
from pathlib import Path

from protos.router.v1 import router_pb2 as router
from protos.router.v1 import router_pb2_grpc
from services.chassis.channel import open_channel
from services.chassis.exchange import ExchangeClient, RpcCall
from tests.services.chassis.exchange.talker import Talker, opening


async def test_ordinary_call_serves_the_same_conversation(socket_folder: Path, client: ExchangeClient) -> None:
    async with open_channel(f"unix:{socket_folder}/router.sock") as channel:
        stub = router_pb2_grpc.RouterServiceStub(channel)
        call: RpcCall[router.ChatResponse] = RpcCall("router", stub.Chat(), opening(pieces=5))
        numbers = []
        while (response := await call.receive()) is not None:
            numbers.append(response.output_tokens)
        assert numbers == [0, 1, 2, 3, 4]


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
            async with asyncio.timeout(5):
                await talker.left.wait()
        assert talker.left.is_set()
