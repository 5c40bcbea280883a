"""The HTTP server with an application that says hello, and a client without manners."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from edge.http.connection import RefuseAtOnce, refuse_none
from edge.http.server import HttpServer
from tests.edge.hello import hello


@asynccontextmanager
async def served(stalled_reader_s: float = 60, refuse_at_once: RefuseAtOnce = refuse_none) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = HttpServer(hello, 1, stalled_reader_s, refuse_at_once)
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
