"""Runs the console: settings -> services -> application -> serve."""

import socket

from console.app import ConsoleApp, new_server
from console.process_status import parse_addresses
from console.services import Services
from console.settings import ConsoleServerSettings
from console.web.assets import Assets
from console.web.capacity import Capacity, show_capacity
from console.web.metrics import PageMetrics, show_replicas
from console.web.protection import Protection
from console.web.rendering import Pages
from console.web.visit import Console
from services.chassis.http.addresses import Addresses
from services.chassis.http.server import open_listener
from services.chassis.process.run import run
from services.chassis.process.serving import serving
from services.chassis.settings import load


async def main() -> None:
    settings = load(ConsoleServerSettings)
    async with serving("console", settings) as process:
        process.listen_for_stop()
        log, registry = process.log, process.registry
        inherited = [socket.socket(fileno=fd) for fd in settings.fds]
        listeners = inherited or [open_listener(settings.console_host, settings.console_port)]
        services = Services(settings.address, process.certificates, log, settings.payments_address)
        show_replicas(registry, services.usable)
        console = Console(
            services,
            Pages(Assets()),
            Protection(settings.origins, settings.console_api_url),
            settings.console_api_url.rstrip("/"),
            process.clock,
            log,
            serves_operators=settings.console_role == "operator-console",
            public_origin=settings.console_public_url.rstrip("/"),
            contact_email=settings.console_contact_email,
            processes=tuple(parse_addresses(settings.console_status_addresses)),
        )
        capacity = Capacity(settings.console_connections, Addresses(settings.trusted_proxies), console.clock, log)
        show_capacity(registry, capacity)
        app = ConsoleApp(console, PageMetrics(registry), capacity)
        await services.start()
        process.opened.push_async_callback(services.close)
        # Ready whatever the services do: a page says which of them does not answer.
        await process.serve_operations(
            settings.console_operations_listen, lambda: ["leaving"] if process.is_leaving else []
        )
        await process.serve_http(new_server(app, capacity, settings.console_drain_s), listeners, "console.serves")


if __name__ == "__main__":
    run("console", main)
