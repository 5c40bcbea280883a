"""Calls of the console: with whose access token, how often, and what a page hears of a failure."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from console import services
from console.services import AuthCalls, if_available
from legato_protos.auth.v1 import accounts_pb2_grpc, credentials_pb2_grpc
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.interceptor import ErrorInterceptor
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log

# Each has far more methods than these tests call.
AccountServicer: Any = accounts_pb2_grpc.AccountAdminServiceServicer
SignInServicer: Any = credentials_pb2_grpc.SignInServiceServicer


class Accounts(AccountServicer, SignInServicer):  # type: ignore[misc]
    def __init__(self, *, answers: bool) -> None:
        self.answers = answers
        self.tokens: list[Any] = []

    async def ListMembers(self, request: Any, context: Any) -> pb.ListMembersResponse:
        await self._note(context)
        return pb.ListMembersResponse()

    async def RemoveMember(self, request: Any, context: Any) -> pb.RemoveMemberResponse:
        await self._note(context)
        raise LegatoError(Reason.NOT_FOUND, Sentence.verbatim("There is no such member."))

    async def SignOut(self, request: Any, context: Any) -> pb.SignOutResponse:
        await self._note(context)
        return pb.SignOutResponse()

    async def _note(self, context: Any) -> None:
        self.tokens.append(dict(context.invocation_metadata()).get(services.ACCESS_TOKEN_METADATA))
        if not self.answers:
            await asyncio.Event().wait()


class User:
    token = b"token"

    async def recent_token(self) -> bytes:
        return self.token


@contextlib.asynccontextmanager
async def serving(folder: Path, *replicas: Accounts) -> AsyncIterator[AuthCalls]:
    log, addresses = Log("console"), []
    async with contextlib.AsyncExitStack() as opened:
        for number, accounts in enumerate(replicas):
            server = grpc.aio.server(interceptors=[ErrorInterceptor(log)])
            accounts_pb2_grpc.add_AccountAdminServiceServicer_to_server(accounts, server)
            credentials_pb2_grpc.add_SignInServiceServicer_to_server(accounts, server)
            addresses.append(f"unix:{folder}/{number}.sock")
            server.add_insecure_port(addresses[-1])
            await server.start()
            opened.push_async_callback(server.stop, None)
        service = ReplicaChannel("Sign-in", "auth", ",".join(addresses), None, log)
        await service.replicas.start()
        opened.push_async_callback(service.replicas.close)
        yield AuthCalls(service, User())


async def test_a_read_that_one_replica_does_not_answer_is_asked_of_another(tmp_path: Path) -> None:
    silent, answering = Accounts(answers=False), Accounts(answers=True)
    async with serving(tmp_path, silent, answering) as auth:
        for _ in range(2):
            await auth.accounts.ListMembers(pb.ListMembersRequest(), timeout=2.0)
    assert answering.tokens == [b"token", b"token"]


async def test_a_change_without_an_answer_is_made_once(tmp_path: Path) -> None:
    replicas = Accounts(answers=False), Accounts(answers=False)
    async with serving(tmp_path, *replicas) as auth:
        with pytest.raises(LegatoError) as caught:
            await auth.accounts.RemoveMember(pb.RemoveMemberRequest(), timeout=0.5)
    assert caught.value.reason is Reason.UNAVAILABLE
    assert sum(len(replica.tokens) for replica in replicas) == 1


async def test_signing_in_and_out_sends_no_access_token(tmp_path: Path) -> None:
    accounts = Accounts(answers=True)
    async with serving(tmp_path, accounts) as auth:
        await auth.sign_in.SignOut(pb.SignOutRequest())
    assert accounts.tokens == [None]


async def test_a_refusal_is_not_taken_for_a_service_that_is_away(tmp_path: Path) -> None:
    async with serving(tmp_path, Accounts(answers=True)) as auth:
        with pytest.raises(LegatoError, match="no such member"):
            await if_available(auth.accounts.RemoveMember(pb.RemoveMemberRequest()))
    async with serving(tmp_path) as auth:
        assert await if_available(auth.accounts.ListMembers(pb.ListMembersRequest())) is None
