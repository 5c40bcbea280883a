"""Which methods a server offers."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from google.protobuf.empty_pb2 import Empty
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.chassis.rpc.channel import open_channel
from services.chassis.rpc.methods import Methods, service_name
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log

CHECK = "/grpc.health.v1.Health/Check"


class Health(health_pb2_grpc.HealthServicer):
    """Has a method of its own, beside the generated ones."""

    def own_handlers(self) -> Mapping[str, Any]:
        return {"Check": grpc.unary_unary_rpc_method_handler(self.answer)}

    async def answer(self, request: bytes, context: object) -> bytes:
        return b"of its own"


def test_a_servicer_has_the_methods_of_its_service_and_its_own_in_their_place() -> None:
    servicer = Health()
    methods = Methods([servicer])
    assert service_name(servicer) == "grpc.health.v1.Health"
    assert sorted(methods.handlers) == [f"/grpc.health.v1.Health/{name}" for name in ("Check", "List", "Watch")]
    assert methods.handlers[CHECK].unary_unary == servicer.answer


async def test_a_server_waits_for_the_next_call_once_however_many_methods_it_has(
    socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_for: list[int] = []
    wait = asyncio.wait

    async def counting(futures: Any, **options: Any) -> Any:
        waited_for.append(len(futures))
        return await wait(futures, **options)

    monkeypatch.setattr(asyncio, "wait", counting)
    address = f"unix:{socket_folder}/server.sock"
    server = RpcServer(address, [], log)
    await server.start()
    async with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        for _ in range(3):
            answer = await stub.Check(health_pb2.HealthCheckRequest())
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await channel.unary_unary("/grpc.health.v1.Health/Other", Empty.SerializeToString)(Empty())
        assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
    await server.stop(0)
    assert waited_for
    assert set(waited_for) == {1}
