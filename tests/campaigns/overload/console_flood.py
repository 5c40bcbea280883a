"""Floods of the console by clients that are not signed in.

While each goes on, pages are asked for and the payment provider delivers an event. The console has the memory of its
manifest, and what it works before it answers is counted in processor time.
"""

import asyncio
import contextlib
import resource
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from console.web.assets import Assets
from services.chassis.telemetry.log import Log
from tests.support.console_process import HOST, ConsoleProcess, memory_limit_bytes, running_console
from tests.support.outside.stripe_server import sign
from tests.support.waiting import until

CONNECTIONS: Final = 1000
# One client's share, and the places of pages.
CLIENT_PLACES: Final = 225
PAGE_PLACES: Final = 900
HEADERS_BYTES: Final = 300 * 1024 * 1024
# Nothing that is sent may hold the event loop for longer, in processor time.
LONGEST_TURN_S: Final = 0.25
PROBES: Final = 20

PAGE: Final = f"GET /sign-in HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
PROBE: Final = f"HEAD /sign-in HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
# Stripe's signatures are valid for some minutes, and floods take longer.
SIGNATURE: Final = sign(b"{}", at_s=time.time() + 3600).signature
EVENT: Final = (
    f"POST /stripe/webhook HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nStripe-Signature: {SIGNATURE}\r\n"
    "Content-Length: 2\r\n\r\n{}"
).encode()
FILE: Final = f"GET {Assets().path_of('console.css')} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
FORM: Final = f"POST /sign-in HTTP/1.1\r\nHost: {HOST}\r\nSec-Fetch-Site: same-origin\r\n".encode()
HALF_A_FORM: Final = FORM + b"Content-Length: 60000\r\n\r\n" + b"x" * 59_999
UNREAD_BODY: Final = FORM.replace(b"/sign-in", b"/nowhere") + b"Content-Length: 1000000000\r\n\r\n"
CHUNKED: Final = FORM + b"Transfer-Encoding: chunked\r\n\r\n"
TINY_CHUNKS: Final = b"1\r\nx\r\n" * 10_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a visitor and the payment provider got while a flood went on."""

    page: int
    event: int


async def run_console_floods(folder: Path, log: Log, say: Callable[[str], None]) -> list[str]:
    """Returns what was wrong."""
    found: list[str] = []
    allow_connections(2 * CONNECTIONS)
    async with running_console(folder, log, LEGATO_CONSOLE_CONNECTIONS=str(CONNECTIONS)) as console:
        assert await visit(console) == Outcome(200, 200)
        console.limit_memory()
        for name, flood, page in FLOODS:
            say(name)
            async with flood(console):
                outcome = await visit(console)
                if outcome != Outcome(page, 200):
                    found.append(f"{name}: {outcome}")
        peak_bytes = console.peak_bytes()
        say(f"the console took {peak_bytes >> 20} MB at most")
        if peak_bytes > memory_limit_bytes():
            found.append("the console took more memory than its manifest gives it")
        if "MemoryError" in console.log_text or "page.failed" in console.log_text:
            found.append("the console failed")
    return found


def allow_connections(number: int) -> None:
    """Lets this process, and those that it starts, have as many connections, and some files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(soft, 2 * number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


async def ask(console: ConsoleProcess, request: bytes) -> int:
    """Returns the status, or 0 for a connection that was closed without one."""
    reader, writer = await asyncio.open_connection(*console.address)
    writer.write(request)
    try:
        async with asyncio.timeout(60):
            line = await reader.readline()
    except ConnectionError:
        return 0
    finally:
        writer.transport.abort()
    return int(line.split()[1]) if line else 0


async def visit(console: ConsoleProcess) -> Outcome:
    return Outcome(await ask(console, PAGE), await ask(console, EVENT))


@contextlib.asynccontextmanager
async def clients(console: ConsoleProcess, number: int, sent: bytes, source: str) -> AsyncIterator[list[socket.socket]]:
    """Connections from one address that have sent something and then neither send nor read."""
    loop = asyncio.get_running_loop()
    async with contextlib.AsyncExitStack() as opened:
        connections = []
        for _ in range(number):
            connection = opened.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            connection.bind((source, 0))
            await loop.sock_connect(connection, console.address)
            with contextlib.suppress(ConnectionError):
                await loop.sock_sendall(connection, sent)
            connections.append(connection)
        yield connections


@contextlib.asynccontextmanager
async def idle(console: ConsoleProcess) -> AsyncIterator[None]:
    async with clients(console, CONNECTIONS, b"", "127.0.0.1"):
        yield


@contextlib.asynccontextmanager
async def half_forms_of_one_client(console: ConsoleProcess) -> AsyncIterator[None]:
    async with clients(console, 2 * CLIENT_PLACES, HALF_A_FORM, "127.0.0.2"):
        yield


@contextlib.asynccontextmanager
async def half_forms_of_many_clients(console: ConsoleProcess) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as opened:
        for number in range(PAGE_PLACES // CLIENT_PLACES):
            source = f"127.0.0.{number + 2}"
            await opened.enter_async_context(clients(console, CLIENT_PLACES, HALF_A_FORM, source))
        yield


@contextlib.asynccontextmanager
async def unread_bodies(console: ConsoleProcess) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as opened:
        for number in range(5):
            source = f"127.0.0.{number + 2}"
            await opened.enter_async_context(clients(console, CONNECTIONS // 5, UNREAD_BODY, source))
        yield


@contextlib.asynccontextmanager
async def unread_answers(console: ConsoleProcess) -> AsyncIterator[None]:
    """Each asks for more than the network between takes."""
    async with contextlib.AsyncExitStack() as opened:
        for number in range(6):
            source = f"127.0.0.{number + 2}"
            await opened.enter_async_context(clients(console, CONNECTIONS // 5, FILE * 4, source))
        yield


@contextlib.asynccontextmanager
async def endless_headers(console: ConsoleProcess) -> AsyncIterator[None]:
    """One line that does not end, and as many lines as it takes."""
    for line in (b"x" * 65_536, b"x: " + b"x" * 60_000 + b"\r\n"):
        sent_bytes = await send_on(console, PAGE[:-2], line, HEADERS_BYTES)
        assert sent_bytes < HEADERS_BYTES, "300 MB of headers were accepted"
    async with sending(console, PAGE[:-2] + b"x: ", b"x" * 65_536), not_held(console):
        yield


@contextlib.asynccontextmanager
async def tiny_chunks(console: ConsoleProcess) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(4):
            await opened.enter_async_context(sending(console, CHUNKED, TINY_CHUNKS))
        await opened.enter_async_context(not_held(console))
        yield


@contextlib.asynccontextmanager
async def not_held(console: ConsoleProcess) -> AsyncIterator[None]:
    """The console answers over and over, and each time before it has worked on something else for long."""
    with console.probed(console.address, PROBE) as probe:
        await until(lambda: probe.answers > 0)
        probe.take_longest_s()
        await until(lambda: probe.answers >= PROBES)
        yield
        assert (held_s := probe.take_longest_s()) < LONGEST_TURN_S, f"held the event loop for {held_s:.2f} s"


@contextlib.asynccontextmanager
async def sending(console: ConsoleProcess, head: bytes, piece: bytes) -> AsyncIterator[None]:
    """A client that goes on, on another connection where one was closed."""

    async def send_for_ever() -> None:
        while True:
            await send_on(console, head, piece, HEADERS_BYTES)

    task = asyncio.create_task(send_for_ever())
    yield
    assert not task.done()
    task.cancel()


async def send_on(console: ConsoleProcess, head: bytes, piece: bytes, most_bytes: int) -> int:
    """Sends until the connection is closed; returns how much that was."""
    _, writer = await asyncio.open_connection(*console.address)
    sent_bytes = 0
    writer.write(head)
    try:
        with contextlib.suppress(ConnectionError):
            while sent_bytes < most_bytes:
                writer.write(piece)
                await writer.drain()
                sent_bytes += len(piece)
    finally:
        writer.transport.abort()
    return sent_bytes


# What goes on, and the status of a page meanwhile. An event is always taken.
FLOODS: Final = (
    ("idle connections of one client", idle, 200),
    ("half forms of one client", half_forms_of_one_client, 200),
    ("half forms of many clients", half_forms_of_many_clients, 503),
    ("bodies that are not read", unread_bodies, 200),
    ("answers that are not read", unread_answers, 200),
    ("endless headers", endless_headers, 200),
    ("tiny chunks", tiny_chunks, 200),
)
