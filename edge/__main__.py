"""Runs the edge: settings -> services -> application -> serve."""

import asyncio
import contextlib
import socket
from collections.abc import Coroutine
from typing import Any, Literal

from edge.api.models import MODELS_PATH
from edge.assembly import assembled
from edge.settings import EdgeSettings
from edge.wire.responses import refusal_before_request
from services.chassis.http.connection_limit import ConnectionLimit, most_connections, show_connections
from services.chassis.http.listener import open_listener
from services.chassis.http.server import HttpServer
from services.chassis.process import memory
from services.chassis.process.run import run, tracing_to
from services.chassis.rpc.server import HealthServer, on_second_signal, private_listen, stop_asked
from services.chassis.settings import load
from services.chassis.telemetry.http_port import serve_operations
from services.chassis.telemetry.log import open_log
from services.chassis.telemetry.metrics import new_registry
from services.chassis.timing.deadlines import SystemClock


async def main() -> None:
    settings = load(EdgeSettings)
    log = open_log("edge", debug=settings.debug)
    stop = asyncio.create_task(stop_asked().wait())
    if settings.edge_fd is None:
        listener = open_listener(settings.edge_host, settings.edge_port)
    else:
        listener = socket.socket(fileno=settings.edge_fd)
    health = HealthServer(settings.edge_health_listen or private_listen(settings.data, "edge"))
    clock, registry = SystemClock(), new_registry()
    async with contextlib.AsyncExitStack() as opened:
        tracer = opened.enter_context(
            tracing_to(settings.otlp_endpoint, "edge", clock, log, registry, settings.trace_ratio)
        )
        edge = await opened.enter_async_context(assembled(settings, clock, log, registry, tracer))
        operations = serve_operations(settings.edge_operations_listen, registry, log, edge.readiness.missing)
        await opened.enter_async_context(operations)
        if await _done_before(stop, edge.prepare()):
            connections = ConnectionLimit(most_connections(settings.edge_connections), clock, log)
            show_connections(registry, connections)
            server = HttpServer(
                edge.app,
                connections,
                refusal_before_request,
                drain_s=settings.drain_s,
                stalled_reader_s=settings.stalled_reader_s,
                refuse_at_once=edge.early_refusals,
                names_under=MODELS_PATH,
            )
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            if await _done_before(stop, edge.complete()):
                await health.start()
                edge.readiness.is_complete = True
                host, port = listener.getsockname()[:2]
                log.info("edge.started", address=f"{host}:{port}")
                memory.settle()
            await stop
            on_second_signal(server.cancel_all)
            edge.readiness.is_leaving = True
            await health.announce_shutdown()
            server.stop_keeping_alive()
            await asyncio.sleep(settings.drain_delay_s)
            server.should_exit = True
            await serving
            await health.stop()


async def _done_before(stop: "asyncio.Task[Literal[True]]", work: Coroutine[Any, Any, None]) -> bool:
    """Returns whether the work was done before shutdown was requested; else cancels it."""
    task = asyncio.create_task(work)
    await asyncio.wait({stop, task}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        return False
    await task
    return True


if __name__ == "__main__":
    run("edge", main)
