"""Serves `/healthz`, `/readyz` and `/metrics` over HTTP, on a port for operators only.

The event loop that serves the clients answers here too. So an answer proves that the loop runs, and metrics are read
between two of its steps, never in the middle of one.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cache
from http import HTTPStatus
from importlib import metadata
from typing import Final

from prometheus_client.exposition import choose_encoder

from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry

REQUEST_WITHIN_S: Final = 5.0
LARGEST_REQUEST_BYTES: Final = 16 * 1024
PLAIN: Final = "text/plain; charset=utf-8"

_ACCEPT: Final = re.compile(rb"\r\naccept:([^\r\n]*)", re.IGNORECASE)

UNIX: Final = "unix:"

# Returns what keeps the process from being ready, for `/readyz`.
Missing = Callable[[], Sequence[str]]


@contextlib.asynccontextmanager
async def serve_operations(
    listen: str,
    registry: Registry,
    log: Log,
    missing: Missing = lambda: (),
    away: Missing = lambda: (),
    full: Missing = lambda: (),
) -> AsyncIterator[str]:
    """Listens at HOST:PORT or unix:PATH, unless that is empty, and yields the address: port 0 means any free port.
    `away` returns what a process waits for that is ready all the same, and `full` what it cannot write."""
    if not listen:
        yield ""
        return
    visits = _Connections(registry, missing, away, full)
    try:
        server, address = await _listen_at(listen, visits)
    except (OSError, OverflowError, ValueError) as error:
        raise SettingsError(f"cannot listen on {listen} for health checks and metrics") from error
    log.info("operations.started", listen=address)
    try:
        yield address
    finally:
        server.close()
        visits.close()
        await server.wait_closed()


async def _listen_at(listen: str, visits: "_Connections") -> tuple[asyncio.Server, str]:
    if listen.startswith(UNIX):
        # It replaces what a process that was killed has left.
        path = listen.removeprefix(UNIX)
        return await asyncio.start_unix_server(visits.answer, path, limit=LARGEST_REQUEST_BYTES), listen
    host, _, port = listen.rpartition(":")
    server = await asyncio.start_server(visits.answer, host.strip("[]"), int(port), limit=LARGEST_REQUEST_BYTES)
    return server, f"{host}:{server.sockets[0].getsockname()[1]}"


class _Connections:
    def __init__(self, registry: Registry, missing: Missing, away: Missing, full: Missing) -> None:
        self._registry = registry
        self._missing = missing
        self._away = away
        self._full = full
        self._open: set[asyncio.StreamWriter] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one request per connection: they come every few seconds."""
        self._open.add(writer)
        try:
            async with asyncio.timeout(REQUEST_WITHIN_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # Not a valid HTTP request in time: the connection is closed.
            pass
        finally:
            self._open.discard(writer)
            writer.close()

    def close(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, PLAIN, b""
        if method in (b"GET", b"HEAD"):
            status, kind, body = self._page(rest.split(b" ", 1)[0].partition(b"?")[0], head)
        answer = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            f"Server: legato/{version()}\r\nConnection: close\r\n\r\n"
        )
        return answer.encode() + (b"" if method == b"HEAD" else body)

    def _page(self, path: bytes, head: bytes) -> tuple[HTTPStatus, str, bytes]:
        if path == b"/metrics":
            # OpenMetrics has the traces of observations, too.
            accept = _ACCEPT.search(head)
            generate, kind = choose_encoder("" if accept is None else accept[1].decode("latin-1"))
            return HTTPStatus.OK, kind, generate(self._registry)
        if path == b"/healthz":
            return HTTPStatus.OK, PLAIN, b"ok\n"
        if path == b"/readyz":
            full = f", disk full: {', '.join(names)}" if (names := self._full()) else ""
            if missing := self._missing():
                return HTTPStatus.SERVICE_UNAVAILABLE, PLAIN, f"not ready: {', '.join(missing)}{full}\n".encode()
            waits = f", waiting for {', '.join(away)}" if (away := self._away()) else ""
            return HTTPStatus.OK, PLAIN, f"ready{waits}{full}\n".encode()
        return HTTPStatus.NOT_FOUND, PLAIN, b"Not found. Use /healthz, /readyz or /metrics.\n"


@cache
def version() -> str:
    """Returns the version of what runs, for the operators' console: during an update there are two of them."""
    return metadata.version("legato")
