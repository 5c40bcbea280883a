"""What is read of a request before its body."""

import asyncio

import pytest

from edge.head import LARGEST_HEADERS_BYTES
from tests.edge.hello_server import exchange, is_error_shape


async def test_endless_headers_are_refused(port: int) -> None:
    head, body = await exchange(port, b"GET / HTTP/1.1\r\nx: " + b"y" * 2 * LARGEST_HEADERS_BYTES + b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)


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
