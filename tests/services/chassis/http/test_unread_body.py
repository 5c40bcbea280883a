"""Bodies that are not read."""

import asyncio

import pytest

from edge.wire.body_reader import LARGEST_BODY_BYTES
from services.chassis.http.body_pacer import (
    SLICE_BYTES,
)
from services.chassis.http.connection import ServerConnection
from tests.services.chassis.http.hello_server import exchange, write_for_ever


async def test_client_that_is_refused_early_may_finish_what_it_says(port: int) -> None:
    body_bytes = LARGEST_BODY_BYTES // 2
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % body_bytes)
    async with asyncio.timeout(60):
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.write(bytes(body_bytes))
        await writer.drain()
        # The connection is as good as before.
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
    writer.close()


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\nconnection: close\r\n", b"POST / HTTP/1.0\r\n"])
async def test_client_that_is_refused_early_may_finish_what_it_says_though_it_asks_no_more(
    port: int, head: bytes
) -> None:
    """A connection that is closed before breaks off what is sent, and few clients listen after that."""
    body_bytes = LARGEST_BODY_BYTES // 2
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + b"host: x\r\ncontent-length: %d\r\n\r\n" % body_bytes)
    async with asyncio.timeout(60):
        # It has been answered by then.
        await asyncio.sleep(0.1)
        writer.write(bytes(body_bytes))
        await writer.drain()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_nothing_is_answered_after_the_last_request_though_its_body_was_passed_over(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\n")
    async with asyncio.timeout(60):
        await reader.readuntil(b"hello")
        writer.write(b"bodyPOST / HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody")
        assert await reader.read() == b""
    writer.close()


async def test_body_that_is_not_read_is_not_listened_to_without_end(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (100 * LARGEST_BODY_BYTES))
    async with asyncio.timeout(30):
        await reader.readuntil(b"hello")
        with pytest.raises(ConnectionError):
            await write_for_ever(writer)
    writer.close()


async def test_bodies_that_are_not_read_are_taken_no_faster_than_leaves_time_for_others(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All the time there is, here: after one read it rests for an hour, and others are answered."""
    monkeypatch.setattr("services.chassis.http.unread_body.PASSED_OVER_BYTES_PER_S", SLICE_BYTES / 3600)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (100 * LARGEST_BODY_BYTES))
    async with asyncio.timeout(60):
        await reader.readuntil(b"hello")
        flood = asyncio.create_task(write_for_ever(writer))
        for _ in range(10):
            head, _ = await exchange(port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
    assert not flood.done()
    flood.cancel()
    writer.transport.abort()


async def test_body_that_is_not_read_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerConnection, "unread_timeout_s", 0.05)
    head, body = await exchange(port, b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf")
    assert (head[:13], body) == (b"HTTP/1.1 200 ", b"hello")
