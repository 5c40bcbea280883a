"""Runs the edge: settings -> services -> application -> serve."""

import socket

from edge.api.models import MODELS_PATH
from edge.assembly import assembled
from edge.rpc.serving import prepare_rpcs
from edge.settings import EdgeSettings
from edge.wire.responses import refusal_before_request
from services.chassis.http.connection_limit import ConnectionLimit, most_connections, show_connections
from services.chassis.http.server import HttpServer, open_listener
from services.chassis.process.run import run
from services.chassis.process.serving import serving
from services.chassis.settings import load


async def main() -> None:
    settings = load(EdgeSettings)
    async with serving("edge", settings) as process:
        process.listen_for_stop()
        if settings.edge_fd is None:
            listener = open_listener(settings.edge_host, settings.edge_port)
        else:
            listener = socket.socket(fileno=settings.edge_fd)
        edge = await process.opened.enter_async_context(assembled(settings, process))
        await process.serve_operations(settings.edge_operations_listen, edge.missing, edge.away)
        if await process.done_before_stop(edge.prepare()):
            connections = ConnectionLimit(most_connections(settings.edge_connections), process.clock, process.log)
            show_connections(process.registry, connections)
            server = HttpServer(
                edge.app,
                connections,
                refusal_before_request,
                drain_s=settings.drain_s,
                stalled_reader_s=settings.stalled_reader_s,
                refuse_at_once=edge.early_refusals,
                names_under=MODELS_PATH,
            )
            rpcs = prepare_rpcs(settings, process, edge.edge)
            await process.serve_http(server, [listener], "edge.started", edge.complete, rpcs)


if __name__ == "__main__":
    run("edge", main)
