"""Runs the console: settings -> services -> application -> serve."""

import asyncio
import contextlib

from console.app import ConsoleApp
from console.process_status import parse_addresses
from console.services import Services
from console.settings import ConsoleServerSettings
from console.web.assets import Assets
from console.web.capacity import Capacity, show_capacity
from console.web.metrics import PageMetrics, show_replicas
from console.web.protection import Protection
from console.web.rendering import Pages
from console.web.server import inherited, new_server
from console.web.visit import Console
from services.chassis.http.addresses import Addresses
from services.chassis.http.listener import open_listener
from services.chassis.process import memory
from services.chassis.process.run import run
from services.chassis.rpc.certificates import open_certificates
from services.chassis.rpc.server import HealthServer, private_listen, stop_asked
from services.chassis.settings import load
from services.chassis.telemetry.http_port import serve_operations
from services.chassis.telemetry.log import open_log
from services.chassis.telemetry.metrics import new_registry, show_certificate
from services.chassis.timing.deadlines import SystemClock


async def main() -> None:
    settings = load(ConsoleServerSettings)
    log = open_log("console", debug=settings.debug)
    stop = stop_asked()
    listeners = inherited(settings.fds) or [open_listener(settings.console_host, settings.console_port)]
    health = HealthServer(settings.console_health_listen or private_listen(settings.data, "console"))
    registry = new_registry()
    certificates = open_certificates(settings.tls_ca, settings.tls_cert, settings.tls_key, log)
    show_certificate(registry, certificates)
    services = Services(settings.address, certificates, log, settings.payments_address)
    show_replicas(registry, services.usable)
    console = Console(
        services,
        Pages(Assets()),
        Protection(settings.origins, settings.console_api_url),
        settings.console_api_url.rstrip("/"),
        SystemClock(),
        log,
        serves_operators=settings.console_role == "operator-console",
        public_origin=settings.console_public_url.rstrip("/"),
        processes=tuple(parse_addresses(settings.console_status_addresses)),
    )
    capacity = Capacity(settings.console_connections, Addresses(settings.trusted_proxies), console.clock, log)
    show_capacity(registry, capacity)
    app = ConsoleApp(console, PageMetrics(registry), capacity)
    async with contextlib.AsyncExitStack() as opened:
        await services.start()
        opened.push_async_callback(services.close)
        # Ready whatever the services do: a page says which of them does not answer.
        await opened.enter_async_context(
            serve_operations(
                settings.console_operations_listen, registry, log, lambda: ["leaving"] if stop.is_set() else []
            )
        )
        server = new_server(app, capacity, settings.console_drain_s)
        serving = asyncio.create_task(server.serve(sockets=listeners))
        await health.start()
        host, port = listeners[0].getsockname()[:2]
        log.info("console.serves", address=f"{host}:{port}")
        memory.settle()
        await stop.wait()
        await health.announce_shutdown()
        server.stop_keeping_alive()
        await asyncio.sleep(settings.drain_delay_s)
        server.should_exit = True
        await serving
        await health.stop()


if __name__ == "__main__":
    run("console", main)
