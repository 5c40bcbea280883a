"""A service with several replicas, called by ordinary RPCs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from legato_protos.auth.v1 import auth_pb2, auth_pb2_grpc
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.rpc.server import RpcServer
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log

TIMEOUT_S = 60.0


class Numbered(auth_pb2_grpc.KeyAdminServiceServicer):
    """A replica that tells its number, and does what a key's id asks for."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.asked = 0

    async def GetKey(self, request: auth_pb2.GetKeyRequest, context: Any) -> auth_pb2.GetKeyResponse:
        self.asked += 1
        if request.key_id == "refused":
            raise LegatoError(Reason.NOT_FOUND, Sentence.verbatim("There is no such key."))
        if request.key_id == "endless":
            await asyncio.Event().wait()
        return auth_pb2.GetKeyResponse(key=auth_pb2.Key(key_id=str(self._number)))


class TwoReplicas:
    def __init__(self, folder: Path, log: Log) -> None:
        addresses = [f"unix:{folder}/{number}.sock" for number in (1, 2)]
        self.servicers = [Numbered(1), Numbered(2)]  # type: ignore[abstract]
        self.servers = [
            RpcServer(address, [servicer], log) for address, servicer in zip(addresses, self.servicers, strict=True)
        ]
        self.channel = ReplicaChannel("Auth", "auth", ",".join(addresses), None, log)

    async def ask(self, key_id: str = "good", timeout_s: float = TIMEOUT_S) -> int:
        stub: Any = auth_pb2_grpc.KeyAdminServiceStub(self.channel.channel)
        return int((await stub.GetKey(auth_pb2.GetKeyRequest(key_id=key_id), timeout=timeout_s)).key.key_id)


@pytest.fixture
async def replicas(socket_folder: Path, log: Log) -> AsyncIterator[TwoReplicas]:
    replicas = TwoReplicas(socket_folder, log)
    for server in replicas.servers:
        await server.start()
    await replicas.channel.start()
    yield replicas
    await replicas.channel.close()
    for server in replicas.servers:
        await server.stop(0)


async def test_another_replica_is_asked_where_one_gives_no_answer(replicas: TwoReplicas) -> None:
    first = await replicas.ask()
    await replicas.servers[first - 1].stop(0)
    assert await replicas.ask(timeout_s=5.0) == 3 - first
    assert [replica.load for replica in replicas.channel.replicas.in_order()] == [0, 0]


async def test_refusal_is_an_answer(replicas: TwoReplicas) -> None:
    with pytest.raises(LegatoError) as refused:
        await replicas.ask("refused")
    assert refused.value.reason is Reason.NOT_FOUND
    assert sum(servicer.asked for servicer in replicas.servicers) == 1


async def test_service_of_which_no_replica_answers_is_named(replicas: TwoReplicas) -> None:
    with pytest.raises(LegatoError, match="Auth") as refused:
        await replicas.ask("endless", timeout_s=0.1)
    assert refused.value.reason is Reason.UNAVAILABLE
    assert [servicer.asked for servicer in replicas.servicers] == [1, 1]
