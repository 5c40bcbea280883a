"""Two auths on one PostgreSQL, and three edges, each with a line of its own to each auth that can be broken."""

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from cli.supervision.health import is_listening
from legato_protos.auth.v1 import auth_pb2 as auth_pb
from legato_protos.auth.v1.accounts_pb2_grpc import AccountAdminServiceStub
from legato_protos.auth.v1.auth_pb2_grpc import KeyAdminServiceStub
from legato_protos.metering.v1 import metering_pb2 as metering_pb
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub
from services.chassis.rpc.channel import open_channel
from tests.campaigns.faults.books.ledger import LedgerReader
from tests.campaigns.faults.harnesses.zygote import Forks, Order, Told
from tests.support.fault_proxy import FaultProxy
from tests.support.service import NEVER_SATURATED, ROUTES

AUTHS = ("auth-1", "auth-2")
EDGES = ("edge-1", "edge-2", "edge-3")
NAMES = (*AUTHS, "router", "metering", *EDGES)

START_TIMEOUT_S = 120.0
# Longer than a change takes to hold everywhere.
CALL_TIMEOUT_S = 5.0
CREDIT_NANOS = 5 * 10**9

SETTINGS = {"LEGATO_REQUESTS_PER_MINUTE": "1000000", **NEVER_SATURATED}


class RevocationHarness:
    def __init__(self, forks: Forks, database_url: str, base_url: str) -> None:
        """`base_url` is the provider's."""
        self._forks = forks
        self._folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
        (self._folder / "run").mkdir(mode=0o700)
        routes = self._folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=base_url))
        foreign = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        self._environ = foreign | {
            "LEGATO_DATA": str(self._folder),
            "LEGATO_ROUTES": str(routes),
            "LEGATO_DATABASE_URL": database_url,
            "LEGATO_KEY_PEPPERS": f"1:{secrets.token_hex(32)}",
            **SETTINGS,
        }
        self._listeners = {name: forks.borrow_listener() for name in EDGES}
        self.proxies = {(edge, auth): FaultProxy(self._socket(auth)) for edge in EDGES for auth in AUTHS}
        self.ledger = LedgerReader(database_url)
        self._pids: dict[str, int | None] = {}
        self._is_ending = False

    def address(self, edge: str) -> tuple[str, int]:
        host, port = self._listeners[edge].getsockname()
        return host, port

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["RevocationHarness"]:
        async with AsyncExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            stack.callback(self.ledger.close)
            for listener in self._listeners.values():
                stack.callback(self._forks.give_back, listener)
            for proxy in self.proxies.values():
                await stack.enter_async_context(proxy)
            channels = [
                await stack.enter_async_context(open_channel(self._socket(name))) for name in (*AUTHS, "metering")
            ]
            self._accounts = [AccountAdminServiceStub(channel) for channel in channels[:2]]
            self._keys = [KeyAdminServiceStub(channel) for channel in channels[:2]]
            self._credits = CreditAdminServiceStub(channels[2])
            stack.push_async_callback(self._end)
            for name in NAMES:
                self._order(name)
            async with asyncio.timeout(START_TIMEOUT_S):
                while not all(is_listening(Path(self._socket(name).removeprefix("unix:"))) for name in NAMES):
                    await asyncio.sleep(0.02)
            yield self

    async def new_key(self) -> auth_pb.CreateKeyResponse:
        """A key of a new account with credit."""
        account = (await self._accounts[0].CreateAccount(auth_pb.CreateAccountRequest(name="someone"))).account
        grant = metering_pb.GrantCreditsRequest(
            operation_id=secrets.token_hex(16), account_id=account.account_id, amount_nanos=CREDIT_NANOS
        )
        await self._credits.GrantCredits(grant)
        return await self._keys[0].CreateKey(auth_pb.CreateKeyRequest(account_id=account.account_id))

    async def revoke(self, key: auth_pb.Key) -> None:
        await self._change([(stub.RevokeKey, auth_pb.RevokeKeyRequest(key_id=key.key_id)) for stub in self._keys])

    async def suspend(self, key: auth_pb.Key) -> None:
        request = auth_pb.SuspendAccountRequest(account_id=key.account_id)
        await self._change([(stub.SuspendAccount, request) for stub in self._accounts])

    async def resume(self, key: auth_pb.Key) -> None:
        request = auth_pb.ResumeAccountRequest(account_id=key.account_id)
        await self._change([(stub.ResumeAccount, request) for stub in self._accounts])

    def kill(self, name: str) -> None:
        """Kills it; it is restarted."""
        pid = self._pids.get(name)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def errors(self) -> list[str]:
        """Lines in the logs by which a process says that something in it broke."""
        lines = [line for name in NAMES for line in self._log_of(name).read_text(errors="replace").splitlines()]
        return [line for line in lines if not line.startswith("{") or '"level":"error"' in line]

    async def _change(self, calls: "list[tuple[grpc.aio.UnaryUnaryMultiCallable[Any, Any], Any]]") -> None:
        """Calls either auth, as an owner who repeats what was not answered."""
        secrets.SystemRandom().shuffle(calls)
        while True:
            for call, request in calls:
                try:
                    await call(request, timeout=CALL_TIMEOUT_S)
                    return
                except grpc.aio.AioRpcError as error:
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                        raise

    async def _end(self) -> None:
        self._is_ending = True
        while self._pids and not self._forks.is_gone:
            for name in list(self._pids):
                self.kill(name)
            await asyncio.sleep(0.005)

    def _order(self, name: str) -> None:
        service = name.partition("-")[0]
        own = {f"LEGATO_{service.upper()}_LISTEN": self._socket(name)}
        listener = self._listeners.get(name)
        if listener is not None:
            own = {
                "LEGATO_EDGE_FD": str(listener.fileno()),
                "LEGATO_EDGE_HEALTH_LISTEN": self._socket(name),
                "LEGATO_AUTH_ADDRESS": ",".join(self.proxies[name, auth].address for auth in AUTHS),
            }
        order = Order(
            name=f"{self._folder.name} {name}",
            service=service,
            environ={**self._environ, **own},
            output=str(self._log_of(name)),
            keep_fd=listener.fileno() if listener is not None else None,
        )
        self._pids[name] = None
        self._forks.order(order, lambda told: self._hear(name, told))

    def _hear(self, name: str, told: Told) -> None:
        if told.exit_code is None:
            self._pids[name] = told.pid
            return
        del self._pids[name]
        if not self._is_ending:
            self._order(name)

    def _socket(self, name: str) -> str:
        return f"unix:{self._folder}/run/{name}.sock"

    def _log_of(self, name: str) -> Path:
        return self._folder / f"{name}.log"
