"""An edge's principals beside a real auth service, with lines between them that can be broken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from edge.access.principal_cache import LEASE_S
from edge.access.principals import Principals
from edge.backends.auth import NAME, AuthReplica, Principal, Scope
from edge.backends.outage_wait import OutageWait, WaitLimits
from legato_protos.auth.v1 import auth_pb2 as pb
from legato_protos.auth.v1.accounts_pb2_grpc import AccountAdminServiceStub
from legato_protos.auth.v1.auth_pb2_grpc import AuthServiceStub, KeyAdminServiceStub
from services.auth.core.peppers import Peppers
from services.auth.service import MIGRATIONS, AuthService
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import open_channel
from services.chassis.rpc.replicas import Replicas
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import Clock
from tests.support.fault_proxy import FaultProxy
from tests.support.servers.migrated import migrated_sqlite

WAIT_TIMEOUT_S = 60.0
# Requests that wait while auth is away.
MOST_WAITING = 30
PEPPER = b"a pepper for tests, 32 bytes long"


class AuthHarness:
    def __init__(
        self,
        socket_folder: Path,
        tmp_path: Path,
        clock: Clock,
        log: Log,
        *,
        replicas: int = 1,
        edge_clock: Clock | None = None,
    ) -> None:
        """`clock` is auth's, and the edge's too unless it has one of its own."""
        self._sockets = [f"unix:{socket_folder}/auth-{number}.sock" for number in range(replicas)]
        self._auth_clock = clock
        self._clock = edge_clock or clock
        self._log = log
        self._database = Database(migrated_sqlite(tmp_path / "auth.db", "auth", MIGRATIONS), "auth")
        self.auth = AuthService(self._database, Peppers({1: PEPPER}), clock, log)
        self._servers: dict[int, RpcServer] = {}
        self.lines = [FaultProxy(address) for address in self._sockets]
        self.registry = Registry()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["AuthHarness"]:
        async with AsyncExitStack() as stack:
            stack.callback(self._database.close)
            for number in range(len(self._sockets)):
                await self.open(number)
            stack.push_async_callback(self._shut_all)
            for line in self.lines:
                await stack.enter_async_context(line)
            channel = await stack.enter_async_context(open_channel(self._sockets[-1]))
            self.stub = AuthServiceStub(channel)
            self._accounts, self._keys = AccountAdminServiceStub(channel), KeyAdminServiceStub(channel)
            self.callers = KeyAdminServiceStub(channel)
            self._maintenance = AuthServiceStub(channel)
            addresses = ",".join(line.address for line in self.lines)
            self.replicas = Replicas(NAME, addresses, lambda address: AuthReplica(address, self._clock), self._log)
            await self.replicas.start()
            stack.push_async_callback(self.replicas.close)
            self.waits = OutageWait(WaitLimits(wait_s=2.0, requests=MOST_WAITING))
            self.principals = Principals(self.replicas, self._clock, self._log, self.registry, waits=self.waits)
            self.principals.start()
            stack.push_async_callback(self.principals.close)
            yield self

    async def open(self, number: int = 0) -> None:
        self._servers[number] = RpcServer(self._sockets[number], self.auth.servicers, self._log)
        await self._servers[number].start()

    async def shut(self, number: int = 0) -> None:
        await self._servers.pop(number).stop(0)

    async def restart(self, number: int, peppers: Peppers) -> None:
        """That replica alone, with other peppers."""
        await self.shut(number)
        self.auth = AuthService(self._database, peppers, self._auth_clock, self._log)
        await self.auth.record_peppers()
        await self.open(number)

    async def _shut_all(self) -> None:
        for number in list(self._servers):
            await self.shut(number)

    async def new_key(self, *scopes: "Scope.ValueType", days: int | None = None) -> pb.CreateKeyResponse:
        account = (await self._accounts.CreateAccount(pb.CreateAccountRequest(name="Ann"))).account
        return await self._keys.CreateKey(
            pb.CreateKeyRequest(account_id=account.account_id, name="k", scopes=scopes, expires_after_days=days)
        )

    async def revoke(self, key: pb.Key) -> None:
        await self._keys.RevokeKey(pb.RevokeKeyRequest(key_id=key.key_id))

    async def maintain(self, *, is_on: bool) -> None:
        if is_on:
            await self._maintenance.StartMaintenance(pb.StartMaintenanceRequest(message="Back at noon."))
        else:
            await self._maintenance.EndMaintenance(pb.EndMaintenanceRequest())

    async def suspend(self, account_id: str) -> None:
        await self._accounts.SuspendAccount(pb.SuspendAccountRequest(account_id=account_id))

    async def resume(self, account_id: str) -> None:
        await self._accounts.ResumeAccount(pb.ResumeAccountRequest(account_id=account_id))

    async def update_account(self, request: pb.UpdateAccountRequest) -> None:
        await self._accounts.UpdateAccount(request)

    async def update_key(self, request: pb.UpdateKeyRequest) -> None:
        await self._keys.UpdateKey(request)

    async def key(self, key: pb.Key) -> pb.Key:
        """The key as listed."""
        await self.auth.last_uses.written()
        listed = (await self._keys.ListKeys(pb.ListKeysRequest(account_id=key.account_id))).keys
        [found] = [one for one in listed if one.key_id == key.key_id]
        return found

    async def leased(self) -> None:
        """The watch has spoken since the clock last moved."""
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while self.principals._principal_cache.lag_s >= LEASE_S:
                await asyncio.sleep(0.01)

    async def heard_of(self, epoch: int) -> None:
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while self.principals._principal_cache.epoch < epoch:
                await asyncio.sleep(0.01)

    async def served(self, headers: list[tuple[bytes, bytes]]) -> Principal:
        """Authenticates once a replica answers."""
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while True:
                try:
                    return await self.principals.authenticate(headers)
                except LegatoError as error:
                    if error.reason is not Reason.UNAVAILABLE:
                        raise
                await asyncio.sleep(0.05)

    async def refusal_of(self, headers: list[tuple[bytes, bytes]]) -> LegatoError:
        with pytest.raises(LegatoError) as refusal:
            await self.principals.authenticate(headers)
        return refusal.value


def bearer(api_key: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"x"), (b"authorization", b"Bearer " + api_key.encode())]
