"""The HTTP server with an application that says hello, and a client without manners."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from edge.wire.responses import refusal_before_request
from services.chassis.http.connection import RefuseAtOnce, refuse_none
from services.chassis.http.connection_limit import MOST_CONNECTIONS, ConnectionLimit
from services.chassis.http.server import HttpServer
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.services.chassis.http.hello import hello


def new_server(
    app: Any = hello,
    *,
    drain_s: float = 1,
    stalled_reader_s: float = 60,
    refuse_at_once: RefuseAtOnce = refuse_none,
    connections: ConnectionLimit | None = None,
    names_under: bytes = b"",
) -> HttpServer:
    return HttpServer(
        app,
        connections or ConnectionLimit(MOST_CONNECTIONS, SystemClock(), Log("edge")),
        refusal_before_request,
        drain_s=drain_s,
        stalled_reader_s=stalled_reader_s,
        refuse_at_once=refuse_at_once,
        names_under=names_under,
    )


@asynccontextmanager
async def served(
    stalled_reader_s: float = 60, refuse_at_once: RefuseAtOnce = refuse_none, names_under: bytes = b""
) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = new_server(stalled_reader_s=stalled_reader_s, refuse_at_once=refuse_at_once, names_under=names_under)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    await serving


async def exchange(port: int, request: bytes) -> tuple[bytes, bytes]:
    """The head and the body of what comes back until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


async def write_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"0" * 1024 * 1024)
        await writer.drain()


def is_error_shape(body: bytes) -> bool:
    return set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
