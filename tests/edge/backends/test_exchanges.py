"""The way that a chat takes to the router."""

from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from edge.backends.chat_opening import ChatOpening
from edge.backends.exchanges import SHARED_STREAM_BYTES, RouterReplica
from legato_protos.router.v1.router_pb2 import ChatOpen
from services.chassis.exchange.client import ExchangeBroken
from services.chassis.exchange.rpc import RpcCall
from services.chassis.telemetry.log import Log

BIG = b'"' + b"x" * SHARED_STREAM_BYTES + b'"'


@pytest.fixture
async def replica(socket_folder: Path, log: Log) -> AsyncIterator[RouterReplica]:
    """A router that is away: who shares its stream is told at once that it is broken."""
    replica = RouterReplica(f"unix:{socket_folder}/router.sock", log)
    yield replica
    await replica.close()


@pytest.mark.parametrize(
    "opening",
    [
        ChatOpening(ChatOpen(), BIG, b""),
        ChatOpening(ChatOpen(), b"[]", BIG),
        ChatOpening(ChatOpen(tool_choice_json=BIG), b"[]", b""),
        ChatOpening(ChatOpen(parameters_json=BIG), b"[]", b""),
        ChatOpening(ChatOpen(parameters_json=BIG[: len(BIG) // 2]), BIG[: len(BIG) // 2], b""),
    ],
    ids=["messages", "tools", "choice of tools", "stops or a schema", "all together"],
)
async def test_chat_that_says_much_travels_by_itself_wherever_it_says_it(
    opening: ChatOpening, replica: RouterReplica
) -> None:
    call = replica.chat(opening, Mock())
    assert isinstance(call, RpcCall)
    call.cancel()


async def test_small_chats_share_a_stream(replica: RouterReplica) -> None:
    with pytest.raises(ExchangeBroken):
        replica.chat(ChatOpening(ChatOpen(parameters_json=BIG[:1000]), BIG[:1000], b""), Mock())
