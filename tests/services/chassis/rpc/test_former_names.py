"""Replicas of two releases, of which each knows a service by another name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from legato_protos.auth.v1 import credentials_pb2_grpc, users_pb2
from legato_protos.auth.v1.credentials_pb2 import GetSignInMethodsRequest, GetSignInMethodsResponse
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.access_check import rule_of
from services.chassis.rpc.callers import CONSOLES, roles_for
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.former_names import former_path, present_path
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log

FORMER = "/legato.auth.v1.SignInMethodService/GetSignInMethods"


class SignIn(credentials_pb2_grpc.SignInServiceServicer):
    async def GetSignInMethods(self, request: Any, context: Any) -> GetSignInMethodsResponse:
        return GetSignInMethodsResponse(oidc_issuer="id.example.org")


class FormerNamesOnly(grpc.GenericRpcHandler):
    """A service of the release before, which has one method."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def service(self, handler_call_details: Any) -> Any:
        self.asked.append(handler_call_details.method)

        async def answer(request: Any, context: Any) -> GetSignInMethodsResponse:
            return GetSignInMethodsResponse(mail=True)

        if handler_call_details.method != FORMER:
            return None
        return grpc.unary_unary_rpc_method_handler(
            answer, GetSignInMethodsRequest.FromString, GetSignInMethodsResponse.SerializeToString
        )


@asynccontextmanager
async def older_server(address: str) -> AsyncIterator[FormerNamesOnly]:
    server, methods = grpc.aio.server(), FormerNamesOnly()
    server.add_generic_rpc_handlers((methods,))
    server.add_insecure_port(address)
    await server.start()
    yield methods
    await server.stop(0)


async def test_a_console_of_the_release_before_calls_a_service_by_its_former_name(
    socket_folder: Path, log: Log
) -> None:
    address = f"unix:{socket_folder}/console.sock"
    servicers = [SignIn()]  # type: ignore[abstract]
    server = RpcServer(f"unix:{socket_folder}/auth.sock", servicers, log, console_listen=address)
    await server.start()
    async with open_channel(address) as channel:
        call: Any = channel.unary_unary(
            FORMER, GetSignInMethodsRequest.SerializeToString, GetSignInMethodsResponse.FromString
        )
        assert (await call(GetSignInMethodsRequest())).oidc_issuer == "id.example.org"
    await server.stop(0)


async def test_a_service_of_the_release_before_is_called_by_its_former_name(socket_folder: Path, log: Log) -> None:
    address = f"unix:{socket_folder}/auth.sock"
    async with older_server(address) as methods:
        replicas = ReplicaChannel("Sign-in", "auth", address, None, log)
        await replicas.start()
        stub: Any = credentials_pb2_grpc.SignInServiceStub(replicas.channel)
        assert (await stub.GetSignInMethods(GetSignInMethodsRequest(), timeout=60.0)).mail
        assert methods.asked == [present_path(FORMER), FORMER]
        # What it has under neither name is refused.
        with pytest.raises(LegatoError) as refused, errors_of("Sign-in"):
            await stub.SignOut(users_pb2.SignOutRequest(), timeout=60.0)
        assert refused.value.reason is Reason.INTERNAL
        await replicas.close()


def test_a_method_has_the_same_callers_under_both_names() -> None:
    assert roles_for(FORMER) == roles_for(present_path(FORMER)) == CONSOLES
    former = "/legato.auth.v1.CredentialService/SetPassword"
    assert rule_of(former) == rule_of(present_path(former)) is not None
    assert former_path(present_path(former)) == former
    assert former_path("/legato.auth.v1.KeyAdminService/CreateKey") is None
