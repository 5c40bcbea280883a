"""`python -m services.router`: from a class to a model and back."""

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Annotated

import msgspec

from services.chassis import memory, process
from services.chassis.certificates import open_certificates
from services.chassis.clock import SystemClock
from services.chassis.log import open_log
from services.chassis.metrics import new_registry, show_certificate, show_exchanges
from services.chassis.operations import serve_operations
from services.chassis.server import Server, private_listen, stop_asked
from services.chassis.settings import HostAndPort, Seconds, SecondsOrZero, load
from services.chassis.tracing import tracing_to
from services.router import routes
from services.router.completion import Completions
from services.router.grounding.opening import open_grounding
from services.router.grounding.servicer import register_grounding_admin
from services.router.grounding.settings import load_grounding_settings
from services.router.lines import Lines
from services.router.local_model import socket_path
from services.router.metrics import show_chats, show_stations
from services.router.providers import open_provider
from services.router.providers.base import Surroundings, Timeouts
from services.router.reload import Reload
from services.router.routes import load_routes
from services.router.saturation import QUEUEING_TOLERATED_S
from services.router.servicer import RouteAdminServicer, RouterServicer, register_route_admin, register_router
from services.router.stations import Stations
from services.router.targets import MOST_ATTEMPTS, Targets

STOP_GRACE_S = 0.5


class RouterSettings(msgspec.Struct, frozen=True, kw_only=True):
    data: Path = Path(".legato")
    router_listen: str = ""
    # Where health alone is told, to those without a certificate.
    router_health_listen: str = ""
    # Where metrics are served to Prometheus over HTTP; without it they are not.
    router_metrics_listen: HostAndPort = ""
    routes: Path = routes.DEFAULT_PATH
    local_model_socket: Path | None = None
    upstream_connect_s: Seconds = 5.0
    upstream_first_byte_s: Seconds = 120.0
    upstream_idle_s: Seconds = 60.0
    upstream_whole_s: Seconds = 600.0
    upstream_total_s: Seconds = 3600.0
    # How many models may be asked for one chat, one after the other.
    upstream_attempts: Annotated[int, msgspec.Meta(ge=1)] = MOST_ATTEMPTS
    # How long a model may let chats wait before new ones are refused; 0: that is not measured.
    upstream_queueing_s: SecondsOrZero = QUEUEING_TOLERATED_S
    # How long a process that is asked to end takes new calls all the same, until nobody sends it any.
    drain_delay_s: SecondsOrZero = 0.0
    # How long chats may go on then.
    drain_s: SecondsOrZero = 30.0
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_tcp: bool = False
    # The collector that traces are brought to, http://HOST:PORT; without it, none are made.
    otlp_endpoint: str = ""
    # Whether providers are told of them, by a header.
    trace_upstream: bool = False
    debug: bool = False

    @property
    def timeouts(self) -> Timeouts:
        """Of models for which the routes file names no others."""
        return Timeouts(
            connect_s=self.upstream_connect_s,
            first_byte_s=self.upstream_first_byte_s,
            idle_s=self.upstream_idle_s,
            whole_s=self.upstream_whole_s,
            total_s=self.upstream_total_s,
        )


async def main() -> None:
    settings, grounding_settings = load(RouterSettings), load_grounding_settings()
    found = load_routes(settings.routes, timeouts=settings.timeouts)
    log = open_log("router", debug=settings.debug)
    listen = settings.router_listen or private_listen(settings.data, "router")
    socket = socket_path(settings.data, settings.local_model_socket)
    lines = Lines(lambda route, timeouts: open_provider(route, Surroundings(timeouts, socket)), log)
    async with contextlib.AsyncExitStack() as opened:
        opened.push_async_callback(lines.aclose)
        clock, registry = SystemClock(), new_registry()
        await opened.enter_async_context(serve_operations(settings.router_metrics_listen, registry, log))
        stations = Stations(found, lines, clock, log, settings.upstream_queueing_s)
        show_stations(stations, registry)
        targets = Targets(stations, log, settings.upstream_attempts, tells_traces=settings.trace_upstream)
        grounding = await open_grounding(grounding_settings, clock, log, opened)
        completions = Completions(stations, targets, clock, log, grounding.grounding)
        show_chats(completions, registry)
        tracer = opened.enter_context(tracing_to(settings.otlp_endpoint, "router", clock, log, registry))
        servicer = RouterServicer(completions, log, tracer)
        show_exchanges(registry, {"edge": servicer.message_items})
        reload = Reload(settings.routes, settings.timeouts, stations, log)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.on_signal)
        registrations = [
            register_router(servicer),
            register_route_admin(RouteAdminServicer(stations, reload)),
            register_grounding_admin(grounding.admin),
        ]
        certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, log)
        show_certificate(registry, certificates)
        server = Server(
            listen,
            registrations,
            log,
            certificates,
            health_listen=settings.router_health_listen,
            insecure_tcp=settings.insecure_tcp,
        )
        stop = stop_asked()
        await server.start()
        log.info("service.started", listen=listen)
        memory.settle()
        await stop.wait()
        await server.leave()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_delay_s + settings.drain_s):
                await servicer.drain(settings.drain_delay_s)
        await server.stop(STOP_GRACE_S)
        log.info("service.stopped")


if __name__ == "__main__":
    process.run("router", main)
