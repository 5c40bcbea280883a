"""Runs a process from its settings to its exit: log, metrics, certificates, serving, and an orderly shutdown.

Every process has the same shape: it opens its parts, which are closed in reverse order, and serves until it is asked to
stop. Then it tells health checks that it is leaving, still serves for a while, drains, and stops.
"""

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from services.chassis.access_tokens import AccessTokenVerifier
from services.chassis.process import memory, pulse
from services.chassis.process.settings import ProcessSettings, ServiceSettings
from services.chassis.rpc.access_check import AccessCheck
from services.chassis.rpc.certificates import open_certificates, show_certificate
from services.chassis.rpc.server import HealthServer, RpcServer, on_stop_signal, private_listen
from services.chassis.telemetry.full_disks import FullDisks
from services.chassis.telemetry.http_port import Missing, serve_operations
from services.chassis.telemetry.log import Value, open_log
from services.chassis.telemetry.metrics import new_registry
from services.chassis.telemetry.tracing import Tracer
from services.chassis.timing.deadlines import SystemClock

if TYPE_CHECKING:
    from services.chassis.database.database import Database
    from services.chassis.http.server import HttpServer

# How long calls that are cancelled have to send their error.
FAREWELL_S: Final = 1.0
COLLECTOR_VARIABLES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@dataclass(frozen=True, slots=True)
class RpcBeside:
    """The RPCs of a process that serves HTTP too."""

    server: RpcServer
    # Cancels all running calls; each sends an error and ends.
    cancel_all: Callable[[], None]
    drain_s: float

    async def drain(self) -> None:
        """Stops; running calls may continue for `drain_s`."""
        late = asyncio.get_running_loop().call_later(self.drain_s, self.cancel_all)
        await self.server.stop(self.drain_s + FAREWELL_S)
        late.cancel()


class Process:
    """The parts that every process has."""

    def __init__(self, name: str, settings: ProcessSettings, opened: AsyncExitStack) -> None:
        self._name = name
        self._settings = settings
        self.opened = opened
        self.clock = SystemClock()
        self.log = open_log(name, debug=settings.debug)
        self.full_disks = FullDisks(self.log)
        self.registry = new_registry()
        self.certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, self.log)
        show_certificate(self.registry, self.certificates)
        self._background: list[Callable[[], Coroutine[object, None, object]]] = []
        self._stop: asyncio.Event | None = None

    @property
    def is_leaving(self) -> bool:
        return self._stop is not None and self._stop.is_set()

    def setting(self, suffix: str) -> str:
        """Returns one of the settings that each process has under its own name, such as `auth_listen`."""
        return str(getattr(self._settings, f"{self._name}_{suffix}"))

    def address_of(self, service: str) -> str:
        given: str = getattr(self._settings, f"{service}_address")
        return given or private_listen(self._settings.data, service)

    def open_database(self, migrations: Path) -> "Database":
        # A heavy import, which not every service needs.
        from services.chassis.database.database import open_database

        settings: Any = self._settings
        database = open_database(self._name, settings.database_url, settings.data)
        database.on_full = self.full_disks.noting(database.title)
        self.opened.callback(database.close)
        database.prepare(
            migrations,
            migrates=settings.migrate_at_start,
            on_wait=lambda reason: self.log.info("migration.waiting", name=self._name, reason=reason),
        )
        return database

    def open_tracer(self, ratio: float = 1.0) -> Tracer | None:
        """Starts tracing, where a collector is set, by us or as OpenTelemetry has it; else returns None."""
        endpoint = str(getattr(self._settings, "otlp_endpoint", ""))
        if not endpoint and not any(os.environ.get(name) for name in COLLECTOR_VARIABLES):
            return None
        # OpenTelemetry is imported only if it is used.
        from services.chassis.telemetry.otlp import exporting

        return self.opened.enter_context(exporting(endpoint, self._name, self.clock, self.log, self.registry, ratio))

    def in_background(self, run: Callable[[], Coroutine[object, None, object]]) -> None:
        """Runs it while the process serves."""
        self._background.append(run)

    async def serve_rpcs(
        self,
        servicers: Sequence[object],
        *,
        access: AccessCheck | None = None,
        drain: Callable[[float], Awaitable[None]] = asyncio.sleep,
        drain_s: float | None = None,
        grace_s: float,
        **started: Value,
    ) -> None:
        """Serves until the process is asked to stop. `drain` is called with the time for which new calls still come,
        and may take `drain_s` longer; calls that then still run have `grace_s` to end."""
        settings = cast(ServiceSettings, self._settings)
        listen = self.setting("listen") or private_listen(settings.data, self._name)
        verifier = AccessTokenVerifier(settings.access_token_public_keys)
        server = RpcServer(
            listen,
            servicers,
            self.log,
            self.certificates,
            health_listen=self.setting("health_listen"),
            insecure_tcp=settings.insecure_tcp,
            access=access or AccessCheck(verifier, lambda: time.time_ns() // 1000),
            console_listen=self.setting("console_listen"),
            console_role=settings.console_role,
        )
        stop = self.listen_for_stop()
        await self.serve_operations(self.setting("metrics_listen"), lambda: ["leaving"] if self.is_leaving else [])
        await server.start()
        self._start_background()
        self.log.info("service.started", listen=listen, **started)
        memory.settle()
        await stop.wait()
        await server.announce_shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if drain_s is None else settings.drain_delay_s + drain_s):
                await drain(settings.drain_delay_s)
        await server.stop(grace_s)

    async def serve_http(
        self,
        server: "HttpServer",
        listeners: list[socket.socket],
        event: str,
        complete: Callable[[], Coroutine[object, None, None]] | None = None,
        beside: "RpcBeside | None" = None,
    ) -> None:
        """Serves until the process is asked to stop; health checks begin once `complete` is done. RPCs `beside` HTTP
        begin and end with it."""
        stop = self.listen_for_stop()
        health = HealthServer(self.setting("health_listen") or private_listen(self._settings.data, self._name))
        serving = asyncio.create_task(server.serve(sockets=listeners))
        if complete is None or await self.done_before_stop(complete()):
            if beside is not None:
                await beside.server.start()
            await health.start()
            host, port = listeners[0].getsockname()[:2]
            self.log.info(event, address=f"{host}:{port}")
            memory.settle()
        await stop.wait()

        def cancel_all() -> None:
            server.cancel_all()
            if beside is not None:
                beside.cancel_all()

        # A further signal ends running requests too.
        on_stop_signal(cancel_all)
        await health.announce_shutdown()
        if beside is not None:
            await beside.server.announce_shutdown()
        server.stop_keeping_alive()
        await asyncio.sleep(self._settings.drain_delay_s)
        server.should_exit = True
        await asyncio.gather(serving, *([] if beside is None else [beside.drain()]))
        await health.stop()

    async def serve_operations(self, listen: str, missing: Missing, away: Missing = lambda: ()) -> None:
        await self.opened.enter_async_context(
            serve_operations(listen, self.registry, self.log, missing, away, lambda: self.full_disks.names)
        )

    def listen_for_stop(self) -> asyncio.Event:
        """Returns the event that a signal sets. Called before the process serves, an early signal leads to a graceful
        shutdown too."""
        if self._stop is None:
            self._stop = asyncio.Event()
            on_stop_signal(self._stop.set)
        return self._stop

    def on_hangup(self, act: Callable[[], None]) -> None:
        """Calls it on SIGHUP, by which operators have files read again."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, act)

    async def done_before_stop(self, work: Coroutine[object, None, None]) -> bool:
        """Returns whether the work was done before shutdown was requested; else cancels it."""
        task, stopping = asyncio.create_task(work), asyncio.create_task(self.listen_for_stop().wait())
        await asyncio.wait({stopping, task}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not task.done():
            task.cancel()
            return False
        await task
        return True

    def _start_background(self) -> None:
        for run in self._background:
            self.opened.callback(asyncio.create_task(run()).cancel)


@contextlib.asynccontextmanager
async def serving(name: str, settings: ProcessSettings) -> AsyncIterator[Process]:
    """Opens a process, and closes what it has opened."""
    pulse.begin()
    async with AsyncExitStack() as opened:
        process = Process(name, settings, opened)
        yield process
    process.log.info("service.stopped")
