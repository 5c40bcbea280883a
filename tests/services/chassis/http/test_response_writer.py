"""One request and its answer, over a real socket."""

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.chassis.http.asgi import BODY, BODY_WRITER, WHEN_GONE
from tests.services.chassis.http.hello_server import new_server

PIECE = bytes(100_000)


class App:
    """Does what the path says, and notes what came of it."""

    def __init__(self) -> None:
        self.bodies: list[bytes | None] = []
        self.received: list[bytes] = []
        self.gone = asyncio.Event()
        self.written = 0
        self.is_full = asyncio.Event()
        self.listeners: list[weakref.ref[Listener]] = []

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        self.bodies.append(scope.get(BODY))
        if scope["path"] == "/wait":
            scope[WHEN_GONE](self.gone.set)
            await self.gone.wait()
            return
        if scope["path"] == "/listen":
            listener = Listener(scope)
            self.listeners.append(weakref.ref(listener))
            scope[WHEN_GONE](listener.hear)
        if scope["path"] == "/read":
            await self._read(receive)
        if scope["path"] == "/fill":
            await self._fill(scope, send)
            return
        headers = [(b"x-split", b"one\r\nx-two: two")] if scope["path"] == "/split" else []
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for piece in (b"first ", b"second "):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _fill(self, scope: dict[str, Any], send: Any) -> None:
        """Writes without waiting until the client does not keep up, then waits until it does."""
        writer = scope[BODY_WRITER]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not writer.flow.write_paused:
            writer.write(PIECE)
            self.written += 1
        self.is_full.set()
        await writer.drain()
        assert not writer.flow.write_paused
        await send({"type": "http.response.body", "body": b"the end"})

    async def _read(self, receive: Any) -> None:
        more = True
        while more:
            message = await receive()
            self.received.append(message["body"])
            more = message["more_body"]


class Listener:
    """Knows its request, as a chat does."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope

    def hear(self) -> None: ...


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
async def port(app: App) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = new_server(app)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    await serving


async def exchange(port: int, *pieces: bytes) -> bytes:
    """Sends a request in pieces, a little apart, and returns what comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.02)
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
    writer.close()
    return answer


async def test_answer_without_a_length_comes_in_chunks(port: int) -> None:
    answer = await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer.count(b"\r\ntransfer-encoding: chunked\r\n") == 2
    assert answer.count(b"\r\n\r\n6\r\nfirst \r\n7\r\nsecond \r\n0\r\n\r\n") == 2


async def test_answer_without_a_length_comes_as_it_is_to_who_knows_no_chunks(port: int) -> None:
    answer = await exchange(port, b"GET / HTTP/1.0\r\n\r\n")
    assert b"transfer-encoding" not in answer
    assert b"\r\nconnection: close\r\n" in answer
    # Where the connection ends, it ends.
    assert answer.endswith(b"\r\n\r\nfirst second ")


async def test_pieces_are_written_without_waiting_as_long_as_the_client_keeps_up(port: int, app: App) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
    async with asyncio.timeout(60):
        writer.write(b"GET /fill HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        await app.is_full.wait()
        pieces = []
        # `read()` would take it byte by byte, with a buffer that small.
        while piece := await reader.read(len(PIECE)):
            pieces.append(piece)
        answer = b"".join(pieces)
    writer.close()
    assert answer.count(PIECE) == app.written
    assert answer.endswith(b"7\r\nthe end\r\n0\r\n\r\n")


async def test_head_has_no_body(port: int) -> None:
    answer = await exchange(port, b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert answer.count(b"first") == 1


async def test_header_of_two_lines_never_leaves(port: int) -> None:
    assert b"x-two" not in await exchange(port, b"GET /split HTTP/1.1\r\nhost: x\r\n\r\n")


async def test_body_that_came_with_its_headers_needs_no_waiting(port: int, app: App) -> None:
    await exchange(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody")
    assert app.bodies[0] == b"body"


@pytest.mark.parametrize("pieces", [(b"\r\nbody",), (b"\r\n", b"bo", b"dy"), (b"\r\nbo", b"dy")])
async def test_body_is_received_whole_however_it_comes(port: int, app: App, pieces: tuple[bytes, ...]) -> None:
    first, *rest = pieces
    await exchange(port, b"POST /read HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n" + first, *rest)
    assert b"".join(app.received) == b"body"


async def test_who_asks_first_is_told_to_send_its_body(port: int, app: App) -> None:
    head = b"POST /read HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n"
    assert (await exchange(port, head, b"body")).startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert app.received == [b"body"]


async def test_application_is_told_that_its_client_has_left(port: int, app: App) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n")
    await asyncio.sleep(0.02)
    assert not app.gone.is_set()
    writer.close()
    async with asyncio.timeout(60):
        await app.gone.wait()


GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
UPLOAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
AT_ONCE_OR_LATER = {
    "at once": (GET, b""),
    "at once and later": (GET, GET),
    "at once in part": (GET[:-9], GET[-9:]),
    "later": (b"", GET),
    "later in part": (b"", GET[:-9]),
    "at once with a big body": (UPLOAD + bytes(200_000), bytes(800_000)),
    "later with a big body": (b"", UPLOAD + bytes(1_000_000)),
}


@pytest.mark.parametrize("when", AT_ONCE_OR_LATER)
async def test_client_that_has_asked_twice_may_leave_too(port: int, app: App, when: str) -> None:
    """The first of its requests is the one that is being answered."""
    at_once, later = AT_ONCE_OR_LATER[when]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n" + at_once)
    await asyncio.sleep(0.02)
    writer.write(later)
    await asyncio.sleep(0.02)
    assert not app.gone.is_set()
    writer.transport.abort()
    async with asyncio.timeout(60):
        await app.gone.wait()


async def test_answered_request_leaves_nothing_to_the_collector(port: int, app: App) -> None:
    """Its objects would else live on until there are twenty thousand of them, and are then looked through together."""
    gc.disable()
    try:
        await exchange(port, b"GET /listen HTTP/1.1\r\nhost: x\r\n\r\n")
        assert [listener() for listener in app.listeners] == [None]
    finally:
        gc.enable()
