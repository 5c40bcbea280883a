"""What is read of a request before its body."""

import asyncio

import pytest

from edge.head import LARGEST_HEADERS_BYTES
from tests.edge.hello_server import exchange, is_error_shape, write_for_ever


async def test_endless_headers_are_refused(port: int) -> None:
    head, body = await exchange(port, b"GET / HTTP/1.1\r\nx: " + b"y" * 2 * LARGEST_HEADERS_BYTES + b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET / HTTP/1.1\r\nx: ",
        b"GET /",
        b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
        # Answered before its body comes.
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
    ],
)
async def test_line_that_does_not_end_is_not_listened_to_without_end(port: int, beginning: bytes) -> None:
    """The parser would keep it until it does."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(beginning)
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionError):
            await write_for_ever(writer)
    writer.transport.abort()


TRAILER = b"authorization: Bearer key\r\nx-forwarded-for: 192.0.2.1\r\n"


@pytest.mark.parametrize("pause_before", [b"4\r\nbody", b"0\r\n", b"x-forwarded-for", b"no pause"])
async def test_what_comes_after_the_body_is_no_header(port: int, pause_before: bytes) -> None:
    """A proxy has not looked at it, and the key was asked for before it came."""
    request = b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n" + TRAILER + b"\r\n"
    first, pause, rest = request.partition(pause_before)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first)
    await asyncio.sleep(0.02)
    writer.write(pause + rest + b"POST /echo HTTP/1.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    async with asyncio.timeout(10):
        answers = await reader.read()
    assert b"\r\n\r\ntransfer-encoding\n\nbodyHTTP/1.1 200 " in answers
    # Nor is it one of the next request.
    assert answers.endswith(b"\r\n\r\nconnection\ncontent-length\n\n")
    writer.close()


OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\nhttp2-settings: AAMA\r\n"


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize(
    "body", [b"content-length: 4\r\n\r\nbody", b"transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize("pause_before", [b"settings: AAMA", b"\r\n\r\n", b"dy", b"no pause"])
async def test_offer_of_another_protocol_is_not_taken_up(
    port: int, protocol: bytes, body: bytes, pause_before: bytes
) -> None:
    """curl and Java's client make one by themselves."""
    request = b"POST /echo HTTP/1.1\r\n" + OFFER % protocol + body
    first, pause, rest = request.partition(pause_before)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(10):
        # The connection is as good as before, too.
        for _ in range(2):
            writer.write(first)
            await asyncio.sleep(0.02 if pause else 0)
            writer.write(pause + rest)
            assert (await reader.readuntil(b"\n\nbody")).startswith(b"HTTP/1.1 200 ")
        writer.write(request + request)
        for _ in range(2):
            assert (await reader.readuntil(b"\n\nbody")).startswith(b"HTTP/1.1 200 ")
    writer.close()


@pytest.mark.parametrize("address", [b"example.org:443", b"/v1/models"])
async def test_tunnel_is_refused(port: int, address: bytes) -> None:
    head, body = await exchange(port, b"CONNECT %b HTTP/1.1\r\nhost: x\r\n\r\n" % address)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)
