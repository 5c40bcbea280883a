"""Tries out every method that is for operators, by each console with each kind of token, over TCP and on a socket."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from services.chassis.access_tokens import METADATA_KEY, Access, AccessTokenSigner, AccessTokenVerifier, AccountRole
from services.chassis.errors import Reason
from services.chassis.rpc.access_check import STEP_UP_VALID_US, AccessCheck
from services.chassis.rpc.channel import from_rpc_error, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.services.chassis.rpc.test_callers import OURS, RULES, anything
from tests.support.certificates import Authority

NOW_US = STEP_UP_VALID_US + 1
SIGNER = AccessTokenSigner("55" * 32)
OWNER = Access("user_a", "ses_a", "acct_a", AccountRole.OWNER, False, NOW_US, NOW_US + 1)
OPERATOR = replace(OWNER, is_operator=True)
# Signed in longer than ten minutes ago.
STALE_OPERATOR = replace(OPERATOR, authenticated_at_us=0)
FOR_OPERATORS = sorted(method for method, rule in RULES.items() if rule.operator)
FOR_OPERATORS_AND_MEMBERS = sorted(method for method, rule in RULES.items() if rule.or_operator)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["tcp", "socket"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Consoles:
    """Every service there is, in one process, as each console reaches it."""

    def __init__(self, transport: str, authority: Authority, folder: Path, log: Log) -> None:
        self._transport = transport
        self._authority = authority
        self._folder = folder
        self._log = log

    @asynccontextmanager
    async def channel(self, identity: str) -> AsyncIterator[grpc.aio.Channel]:
        access = AccessCheck(AccessTokenVerifier(SIGNER.public_key()), lambda: NOW_US)
        socket = f"unix:{self._folder}/{identity}.sock"
        server = RpcServer(
            "127.0.0.1:0",
            [anything(service, self._log) for service in OURS],
            self._log,
            self._authority.certificates("auth", self._log),
            access=access,
            console_listen=socket,
            console_role=identity,
        )
        await server.start()
        try:
            async with asyncio.timeout(60):
                if self._transport == "socket":
                    async with open_channel(socket) as channel:
                        yield channel
                else:
                    pem = self._authority.certificates(identity, self._log).current()
                    async with open_channel(f"127.0.0.1:{server.port}", pem, "auth") as channel:
                        yield channel
        finally:
            await server.stop(0)


@pytest.fixture
def consoles(transport: str, authority: Authority, socket_folder: Path, log: Log) -> Consoles:
    return Consoles(transport, authority, socket_folder, log)


async def refusals(
    consoles: Consoles, identity: str, access: Access | None, methods: Sequence[str] = FOR_OPERATORS
) -> dict[str, Reason | None]:
    """Calls methods that are for operators; returns why each was refused, None if it was not."""
    metadata = () if access is None else ((METADATA_KEY, SIGNER.sign(access)),)
    found: dict[str, Reason | None] = {}
    async with consoles.channel(identity) as channel:
        for method in methods:
            try:
                call: Any = channel.unary_unary(method)
                await call(b"", metadata=metadata, wait_for_ready=True)
                found[method] = None
            except grpc.aio.AioRpcError as error:
                found[method] = from_rpc_error(error, "auth").reason
    return found


async def test_the_public_console_calls_none_of_them_even_with_an_operators_token(consoles: Consoles) -> None:
    assert set((await refusals(consoles, "console", OPERATOR)).values()) == {Reason.CALLER_NOT_ALLOWED}


async def test_in_the_public_console_an_operators_token_is_good_for_its_own_account_alone(consoles: Consoles) -> None:
    shared = FOR_OPERATORS_AND_MEMBERS
    assert set((await refusals(consoles, "operator-console", OPERATOR, shared)).values()) == {None}
    assert set((await refusals(consoles, "console", OPERATOR, shared)).values()) == {Reason.ROLE_MISSING}


async def test_the_operators_console_can_do_nothing_without_a_token(consoles: Consoles) -> None:
    assert set((await refusals(consoles, "operator-console", None)).values()) == {Reason.ACCESS_TOKEN_INVALID}


async def test_the_operators_console_can_do_nothing_for_an_owner_who_is_no_operator(consoles: Consoles) -> None:
    assert set((await refusals(consoles, "operator-console", OWNER)).values()) == {Reason.ROLE_MISSING}


async def test_an_operators_token_is_good_for_each_and_what_grants_needs_a_recent_proof(consoles: Consoles) -> None:
    assert set((await refusals(consoles, "operator-console", OPERATOR)).values()) == {None}
    stale = await refusals(consoles, "operator-console", STALE_OPERATOR)
    assert {method for method, reason in stale.items() if reason is Reason.STEP_UP_REQUIRED} == {
        method for method in FOR_OPERATORS if RULES[method].recent
    }


def test_what_removes_access_or_reads_never_needs_a_recent_proof() -> None:
    removing = ("SuspendAccount", "RevokeKey", "DisableUser", "SetOperator", "List", "Get", "Audit", "Verify")
    needing = {method.rpartition("/")[2] for method in FOR_OPERATORS if RULES[method].recent}
    assert not {name for name in needing if name.startswith(removing)}
    assert {"GrantCredits", "AdjustCredits", "CreateUser", "CreateSignInLink", "ResumeAccount"} <= needing
