"""A call as admission sees it: the size of its message, and what refuses it."""

import grpc.aio
import pytest

from edge.wire.body_reader import LARGEST_BODY_BYTES
from legato_protos.chat.v1 import chat_pb2 as pb
from services.chassis.errors import Reason
from services.chassis.load.fair_budget import FairBudget
from tests.edge.chat_harness import ChatHarness, end, saying
from tests.edge.rpc.rpc_harness import KEY, RpcHarness, TrackedKey, reason_of


def long_chat(size: int) -> pb.CompleteRequest:
    return pb.CompleteRequest(chat=pb.Chat(messages=[pb.Message(role=pb.ROLE_USER, text="x" * size)]))


async def test_message_above_the_limit_of_bodies_is_refused(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(saying(end(0)))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc_harness.stub.Complete(long_chat(LARGEST_BODY_BYTES), metadata=KEY)
    assert reason_of(raised.value).reason == Reason.BODY_TOO_LARGE


async def test_message_that_is_longer_as_json_than_a_body_may_be_is_refused(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(saying(end(0)))
    chat = pb.Chat(messages=[pb.Message(role=pb.ROLE_USER, text="\1" * (LARGEST_BODY_BYTES // 6))])
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc_harness.stub.Complete(pb.CompleteRequest(chat=chat), metadata=KEY)
    assert reason_of(raised.value).reason == Reason.BODY_TOO_LARGE


async def test_prompt_that_does_not_fit_into_the_memory_for_prompts_is_refused(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start(saying(end(0)), prompt_memory=FairBudget("Memory", 30_000))
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc_harness.stub.Complete(long_chat(40_000), metadata=KEY)
    assert reason_of(raised.value).reason == Reason.SATURATED


async def test_maintenance_refuses_calls(rpc_harness: RpcHarness, chat_harness: ChatHarness) -> None:
    principals = TrackedKey(chat_harness)
    principals.maintenance._current.is_on = True
    await rpc_harness.start(saying(end(0)), principals=principals)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await rpc_harness.stub.Complete(long_chat(1), metadata=KEY)
    assert reason_of(raised.value).reason == Reason.MAINTENANCE
