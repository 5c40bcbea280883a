"""settings -> services -> application -> serve."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator

import uvicorn
import uvloop

from edge.app import Edge
from edge.bodies import Bodies
from edge.chat import ChatEndpoint
from edge.metering import Metering
from edge.models import Models
from edge.principals import Principals
from edge.services import Services
from edge.settings import EdgeSettings
from services.chassis import lifeline
from services.chassis.clock import SystemClock
from services.chassis.log import open_log
from services.chassis.server import Server, wait_for_stop
from services.chassis.settings import SettingsError, load


async def main(settings: EdgeSettings) -> None:
    log = open_log("edge", debug=settings.debug)
    clock = SystemClock()
    listener = open_listener(settings)
    services = Services(settings.address("auth"), settings.address("router"), settings.address("metering"), clock, log)
    principals = Principals(services.auth, clock)
    metering = Metering(services.meterings, clock, log)
    models = Models(services.routers)
    chat = ChatEndpoint(principals, metering, services.routers, models, Bodies(), clock, log)
    health = (
        Server(settings.edge_health_listen, [], log, insecure_tcp=settings.insecure_tcp)
        if settings.edge_health_listen
        else None
    )
    await services.start()
    principals.start()
    models.start()
    server = HttpServer(Edge(chat, log), settings.drain_s)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await models.known()
    if health is not None:
        await health.start()
    host, port = listener.getsockname()[:2]
    log.info("edge.serves", address=f"{host}:{port}")
    await wait_for_stop()
    if health is not None:
        await health.stop(0)
    server.should_exit = True
    await serving
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.drain_s):
            await metering.settled()
    await models.close()
    await principals.close()
    await services.close()


class HttpServer(uvicorn.Server):
    def __init__(self, app: Edge, drain_s: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="uvloop",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=int(drain_s) or 1,
                backlog=2048,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: there is more to end than the HTTP server."""
        yield


def open_listener(settings: EdgeSettings) -> socket.socket:
    if settings.edge_fd is not None:
        return socket.socket(fileno=settings.edge_fd)
    try:
        return socket.create_server(
            (settings.edge_host, settings.edge_port),
            family=socket.AF_INET6 if ":" in settings.edge_host else socket.AF_INET,
            backlog=2048,
        )
    except OSError as error:
        raise SettingsError(f"cannot listen on {settings.edge_host}:{settings.edge_port}: {error.strerror}") from error


if __name__ == "__main__":
    lifeline.hold()
    try:
        uvloop.run(main(load(EdgeSettings)))
    except SettingsError as error:
        sys.exit(f"edge: {error}")
