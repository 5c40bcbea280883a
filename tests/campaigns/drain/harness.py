"""Up to two of each process, as on many machines: TCP with certificates between them, one PostgreSQL, one Valkey."""

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cli.connection import ServiceStubs, running_services
from services.chassis.rpc.channel import open_channel
from tests.campaigns.faults.harnesses.zygote import Forks, Order, Told
from tests.support.certificates import Authority
from tests.support.servers.ports import free_port
from tests.support.service import NEVER_SATURATED, ROUTES

SERVICES = ("auth", "router", "metering")
EDGES = ("edge-1", "edge-2")
NAMES = (*(f"{service}-{number}" for service in SERVICES for number in (1, 2)), *EDGES)

START_TIMEOUT_S = 120.0
ASK_TIMEOUT_S = 2.0
POLL_S = 0.05
# Longer than it takes a client to notice that an edge wants no more of them, also on a busy machine.
EDGE_DRAIN_DELAY_S = 3.0

SETTINGS = {
    "LEGATO_REQUESTS_PER_MINUTE": "1000000",
    "LEGATO_REQUEST_BURST": "100000",
    "LEGATO_DATA_REGION": "local",
    "LEGATO_DATABASE_REGION": "local",
    "LEGATO_VALKEY_REGION": "local",
    **NEVER_SATURATED,
}


class DrainHarness:
    def __init__(
        self,
        forks: Forks,
        names: Sequence[str],
        service_drain_delay_s: float,
        database_url: str,
        valkey_url: str,
        base_url: str,
    ) -> None:
        """`names` are those that run at first; edges know of all. `base_url` is the provider's."""
        self._service_drain_delay_s = service_drain_delay_s
        self._first = names
        self._forks = forks
        self._folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
        self._authority = Authority(self._folder / "certs")
        self._ports = {name: free_port() for name in NAMES}
        routes = self._folder / "routes.toml"
        routes.write_text(ROUTES.format(base_url=base_url))
        # Settings of the person who runs this are not for these processes.
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")} | {
            "LEGATO_DATA": str(self._folder),
            "LEGATO_ROUTES": str(routes),
            "LEGATO_DATABASE_URL": database_url,
            "LEGATO_VALKEY_URL": valkey_url,
            "LEGATO_METERING_REPLICAS": "2",
            "LEGATO_KEY_PEPPERS": f"1:{secrets.token_hex(32)}",
            **{f"LEGATO_{service.upper()}_ADDRESS": self._addresses(service) for service in SERVICES},
            **SETTINGS,
        }
        self._pids: dict[str, int] = {}
        self._ends: dict[str, asyncio.Future[int]] = {}
        self._health: dict[str, Any] = {}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["DrainHarness"]:
        async with AsyncExitStack() as stack:
            stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
            for name in NAMES:
                channel: Any = await stack.enter_async_context(open_channel(self._health_socket(name)))
                self._health[name] = health_pb2_grpc.HealthStub(channel)
            stack.push_async_callback(self._kill_all)
            for name in self._first:
                self._order(name)
            for name in self._first:
                await self._until_serving(name)
            yield self

    def base_url(self, edge: str) -> str:
        return f"http://127.0.0.1:{self._ports[edge]}/v1"

    @contextmanager
    def services(self) -> Iterator[ServiceStubs]:
        """Connects to running ones as an admin."""
        services = running_services(self._folder, self._environ | self._tls("admin"))
        yield services
        services.close()

    async def is_serving(self, name: str) -> bool:
        try:
            answer = await self._health[name].Check(health_pb2.HealthCheckRequest(), timeout=ASK_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def replace_certificates(self) -> None:
        """All of them, and the authority: what is connected stays so, and whatever connects needs the new ones."""
        self._authority.replace()

    async def end(self, name: str) -> int:
        """Asks a process to end, and waits until it has; its exit code."""
        end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ends[name] = end
        os.kill(self._pids[name], signal.SIGTERM)
        return await end

    async def start(self, name: str) -> None:
        self._order(name)
        await self._until_serving(name)

    def complaints(self) -> list[str]:
        """Lines by which a process says that something in it broke."""
        lines = [line for path in self._folder.glob("*.log") for line in path.read_text(errors="replace").splitlines()]
        broken = [line for line in lines if '"level":"error"' in line or line.startswith("Traceback")]
        # On a busy machine Valkey may answer too late; then limits are kept by each metering, and that is well.
        return [line for line in broken if '"event":"limits.local"' not in line]

    async def _until_serving(self, name: str) -> None:
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self.is_serving(name):
                await asyncio.sleep(POLL_S)

    async def _kill_all(self) -> None:
        while self._pids and not self._forks.is_gone:
            for pid in self._pids.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)

    def _order(self, name: str) -> None:
        service = name.partition("-")[0]
        own = {
            f"LEGATO_{service.upper()}_LISTEN": f"127.0.0.1:{self._ports[name]}",
            f"LEGATO_{service.upper()}_HEALTH_LISTEN": self._health_socket(name),
            "LEGATO_EDGE_PORT": str(self._ports[name]),
            "LEGATO_DRAIN_DELAY_S": str(EDGE_DRAIN_DELAY_S if name in EDGES else self._service_drain_delay_s),
        }
        order = Order(
            name=f"{self._folder.name} {name}",
            service=service,
            environ={**self._environ, **own, **self._tls(service)},
            output=str(self._folder / f"{name}.log"),
        )
        self._forks.order(order, lambda told: self._hear(name, told))

    def _hear(self, name: str, told: Told) -> None:
        if told.exit_code is None:
            self._pids[name] = told.pid
            return
        del self._pids[name]
        if name in self._ends:
            self._ends.pop(name).set_result(told.exit_code)

    def _tls(self, identity: str) -> dict[str, str]:
        certificate, key = self._authority.files(identity)
        authority = certificate.with_name("ca.pem")
        return {"LEGATO_TLS_CA": str(authority), "LEGATO_TLS_CERT": str(certificate), "LEGATO_TLS_KEY": str(key)}

    def _addresses(self, service: str) -> str:
        return ",".join(f"127.0.0.1:{self._ports[f'{service}-{number}']}" for number in (1, 2))

    def _health_socket(self, name: str) -> str:
        return f"unix:{self._folder}/{name}.sock"
