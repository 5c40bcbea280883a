"""Health and reflection of the edge, whose messages are received in turns, are served as by any gRPC server."""

from typing import Any, cast

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.edge.rpc.rpc_harness import RpcHarness, reason_of

SERVING = health_pb2.HealthCheckResponse.SERVING
SERVICE = "legato.chat.v1.ChatService"


async def test_health_is_told_once_and_as_it_changes(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start()
    stub: Any = health_pb2_grpc.HealthStub(rpc_harness.channel)
    request = health_pb2.HealthCheckRequest(service=SERVICE)
    assert (await stub.Check(request)).status == SERVING
    watch = stub.Watch(request)
    assert (await watch.read()).status == SERVING
    watch.cancel()
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await stub.Check(health_pb2.HealthCheckRequest(service="nothing"))
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_answers_one_question_after_the_other(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start()
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast(Any, rpc_harness.channel))
    call = stub.ServerReflectionInfo()
    for question in (
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE),
    ):
        await call.write(question)
        assert not (await call.read()).HasField("error_response")
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


async def test_message_that_is_none_is_refused(rpc_harness: RpcHarness) -> None:
    await rpc_harness.start()
    check: Any = rpc_harness.channel.unary_unary("/grpc.health.v1.Health/Check")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await check(b"\xff")
    assert reason_of(refused.value).reason == "REQUEST_INVALID"
