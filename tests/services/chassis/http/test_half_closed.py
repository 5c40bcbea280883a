"""Clients that send no more: some of them wait for their answer, and some have left."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.chassis.http.asgi import WHEN_GONE
from services.chassis.http.response_writer import COMMENT
from tests.services.chassis.http.hello_server import new_server

GET = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"
WAIT_TIMEOUT_S = 30


class App:
    """Waits until it is told to answer, or that its client has left."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        scope[WHEN_GONE](self.gone.set)
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": [EVENTS]})
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        self.asked.set()
        waits = [asyncio.ensure_future(event.wait()) for event in (self.may_answer, self.gone)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if scope["path"] != "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"data: 2\n\n"})


EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")


@asynccontextmanager
async def served_by(app: Any) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = new_server(app)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    yield listener.getsockname()[1]
    server.should_exit = True
    await serving


@pytest.mark.parametrize("path", [b"/", b"/stream"])
@pytest.mark.parametrize("is_probed", [True, False])
async def test_client_that_half_closes_and_waits_is_served(path: bytes, is_probed: bool) -> None:
    app = App()
    async with served_by(app) as port, asyncio.timeout(WAIT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % path)
        writer.write_eof()
        await app.asked.wait()
        answer = b""
        if is_probed:
            # It was looked whether anybody is there, by what a client passes over.
            answer = await reader.readuntil(COMMENT if path == b"/stream" else b"100 Continue\r\n\r\n")
        app.may_answer.set()
        answer += await reader.read()
    assert not app.gone.is_set()
    assert b"HTTP/1.1 200 OK\r\n" in answer
    assert answer.count(b"data: 1\n\n") == (path == b"/stream")
    assert answer.endswith(b"data: 2\n\n\r\n0\r\n\r\n")
    writer.close()


@pytest.mark.parametrize("path", [b"/", b"/stream"])
@pytest.mark.parametrize("half_closes_first", [True, False])
async def test_client_that_leaves_is_noticed_though_nothing_is_said(path: bytes, half_closes_first: bool) -> None:
    app = App()
    async with served_by(app) as port, asyncio.timeout(WAIT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % path)
        await app.asked.wait()
        if path == b"/stream":
            await reader.readuntil(b"data: 1\n\n")
        if half_closes_first:
            writer.write_eof()
            await asyncio.sleep(0)
        writer.close()
        await app.gone.wait()


async def test_old_client_that_sends_no_more_has_left() -> None:
    """There is nothing that could be said to it before its answer, so it could not be told."""
    app = App()
    async with served_by(app) as port, asyncio.timeout(WAIT_TIMEOUT_S):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.0\r\nhost: x\r\n\r\n")
        await app.asked.wait()
        writer.write_eof()
        await app.gone.wait()
        writer.close()


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/1.1\r\nho", b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf"]
)
async def test_client_that_ends_before_its_request_does_has_left(head: bytes) -> None:
    app = App()
    async with served_by(app) as port, asyncio.timeout(WAIT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()


async def test_all_requests_that_came_before_the_end_are_answered() -> None:
    app = App()
    async with served_by(app) as port, asyncio.timeout(WAIT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"/" + GET % b"/")
        await app.asked.wait()
        writer.write(GET % b"/")
        writer.write_eof()
        await reader.readuntil(b"100 Continue\r\n\r\n")
        app.may_answer.set()
        assert (await reader.read()).count(b"HTTP/1.1 200 OK\r\n") == 3
        writer.close()


async def test_connection_is_not_kept_for_a_client_that_sends_no_more() -> None:
    app = App()
    app.may_answer.set()
    async with served_by(app) as port, asyncio.timeout(WAIT_TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET % b"/")
        await reader.readuntil(b"0\r\n\r\n")
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
