"""The head of a request, before its body."""

import asyncio

import pytest

from services.chassis.http.request_head import LARGEST_HEADERS_BYTES, MOST_HEADERS
from tests.services.chassis.http.hello_server import exchange, is_error_shape, served, write_for_ever


async def test_endless_headers_are_refused(port: int) -> None:
    head, body = await exchange(
        port, b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"y" * 2 * LARGEST_HEADERS_BYTES + b"\r\n\r\n"
    )
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)


async def test_headers_are_counted_and_not_only_weighed(port: int) -> None:
    """Each costs more than its bytes say: thirty thousand of one letter held the edge for a tenth of a second."""
    few = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + b"a:\r\n" * (MOST_HEADERS - 2) + b"\r\n"
    head, _ = await exchange(port, few)
    assert head.startswith(b"HTTP/1.1 200 ")
    many = b"GET / HTTP/1.1\r\nhost: x\r\n" + b"a:\r\n" * MOST_HEADERS + b"\r\n"
    head, body = await exchange(port, many)
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)


async def test_what_comes_after_the_body_is_counted_with_the_headers(port: int) -> None:
    request = b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n"
    head, body = await exchange(port, request + b"a:\r\n" * MOST_HEADERS + b"\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)


AMBIGUOUS = {
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nhost: x\r\nHost: y\r\n\r\n",
    "the same host twice": b"GET / HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n",
    "two hosts in an old request": b"GET / HTTP/1.0\r\nhost: x\r\nhost: y\r\n\r\n",
    "gzip in chunks": b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks in chunks": b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunks twice": b"POST /echo HTTP/1.1\r\nhost: x\r\n" + 2 * b"transfer-encoding: chunked\r\n" + b"\r\n0\r\n\r\n",
    "chunks in an old request": b"POST /echo HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a slash in disguise": b"GET /v1%2fmodels HTTP/1.1\r\nhost: x\r\n\r\n",
    "a slash in great disguise": b"GET /v1%2Fmodels HTTP/1.1\r\nhost: x\r\n\r\n",
    "a backslash in disguise": b"GET /v1%5Cmodels HTTP/1.1\r\nhost: x\r\n\r\n",
    "version 0.9": b"GET / HTTP/0.9\r\nhost: x\r\n\r\n",
    "version 0.9 without a word": b"GET /\r\n",
    "version 2.0": b"GET / HTTP/2.0\r\nhost: x\r\n\r\n",
}


@pytest.mark.parametrize("what", AMBIGUOUS)
async def test_request_that_others_may_read_otherwise_is_refused(port: int, what: str) -> None:
    """A proxy in front might take it for another request than we do."""
    head, body = await exchange(port, AMBIGUOUS[what])
    assert head.startswith(b"HTTP/1.1 400 ")
    assert is_error_shape(body)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/names/a%2Fb", 200),
        ("/names/..%2f..%2Fsecret", 200),
        ("/names/a%5Cb", 400),
        ("/names/a%2Fb%5Cc", 400),
        ("/names/a%2Fb/c", 400),
        ("/names%2Fa", 400),
        ("/other/a%2Fb", 400),
    ],
)
async def test_name_may_have_an_encoded_slash_where_names_are(path: str, status: int) -> None:
    async with served(names_under=b"/names/") as port:
        request = f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        head, _ = await exchange(port, request.encode())
        assert head.startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET /v1/m%6Fdels HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        b"GET /?path=%2F HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost:\r\nconnection: close\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: Chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_request_that_is_only_unusual_is_answered(port: int, request_bytes: bytes) -> None:
    head, _ = await exchange(port, request_bytes)
    assert head.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "beginning",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\nx: ",
        b"GET /",
        b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
        # Answered before its body comes.
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ",
    ],
)
async def test_line_that_does_not_end_is_not_listened_to_without_end(port: int, beginning: bytes) -> None:
    """The parser would keep it until it does."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(beginning)
    async with asyncio.timeout(60):
        with pytest.raises(ConnectionError):
            await write_for_ever(writer)
    writer.transport.abort()


TRAILER = b"authorization: Bearer key\r\nx-forwarded-for: 192.0.2.1\r\n"


@pytest.mark.parametrize("pause_before", [b"4\r\nbody", b"0\r\n", b"x-forwarded-for", b"no pause"])
async def test_what_comes_after_the_body_is_no_header(port: int, pause_before: bytes) -> None:
    """A proxy has not looked at it, and the key was asked for before it came."""
    request = (
        b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n" + TRAILER + b"\r\n"
    )
    first, pause, rest = request.partition(pause_before)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(first)
    await asyncio.sleep(0.02)
    writer.write(pause + rest + b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
    async with asyncio.timeout(60):
        answers = await reader.read()
    assert b"\r\n\r\nhost\ntransfer-encoding\n\nbodyHTTP/1.1 200 " in answers
    # Nor is it one of the next request.
    assert answers.endswith(b"\r\n\r\nhost\nconnection\ncontent-length\n\n")
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
    request = b"POST /echo HTTP/1.1\r\nhost: x\r\n" + OFFER % protocol + body
    first, pause, rest = request.partition(pause_before)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
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
