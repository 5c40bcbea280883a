"""HTTP as servers really speak it, byte by byte."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.chassis.http_client import connection as http_connection
from services.chassis.http_client import response as limits
from services.chassis.http_client.connection import HttpConnection
from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.origin import Origin, RequestHead
from services.chassis.http_client.pool import ConnectionPool
from tests.support.servers.byte_server import Serve, listening, read_request

HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Visits:
    """Counts connections and keeps requests."""

    def __init__(self) -> None:
        self.connections = 0
        self.requests: list[bytes] = []
        self.left = asyncio.Event()


@asynccontextmanager
async def server_that(*says: bytes, closes: bool = False) -> AsyncIterator[tuple[ConnectionPool, Visits]]:
    """Says the same to every request, in as many writes."""
    visits = Visits()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                visits.requests.append(await read_request(reader))
                for said in says:
                    writer.write(said)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                if closes:
                    break
        visits.left.set()

    async with serving(serve) as found:
        yield found, visits


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[ConnectionPool]:
    async with listening(serve) as port:
        found = ConnectionPool(Origin("127.0.0.1", port), connect_s=5)
        try:
            yield found
        finally:
            await found.aclose()


async def ask(found: ConnectionPool, body: bytes = b"{}") -> HttpConnection:
    connection = await found.acquire()
    connection.answer_within(5)
    head = RequestHead(Origin("127.0.0.1", 80), {"X-Key": "value"})
    try:
        await connection.post(head.for_body("/v1/chat", body), body)
    except BaseException:
        connection.release()
        raise
    return connection


async def answer_of(found: ConnectionPool, body: bytes = b"{}") -> bytes:
    connection = await ask(found, body)
    try:
        received = b""
        while piece := await connection.read():
            received += piece
        return received
    finally:
        connection.release()


async def test_request_is_one_that_servers_understand() -> None:
    async with server_that(HELLO) as (found, visits):
        assert await answer_of(found, b'{"a":1}') == b"hello"
    assert visits.requests == [
        b'POST /v1/chat HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Key: value\r\nContent-Length: 7\r\n\r\n{"a":1}'
    ]


@pytest.mark.parametrize(
    ("says", "closes", "connections"),
    [
        ([HELLO], False, 1),
        (
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"3\r\nllo\r\n0\r", b"\n\r\n"],
            False,
            1,
        ),
        ([HELLO[:20], HELLO[20:40], HELLO[40:]], False, 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HELLO], False, 1),
        ([b"HTTP/1.1 200 OK\r\n\r\n", b"hel", b"lo"], True, 2),
        ([b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"], False, 2),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"], True, 2),
        ([HELLO + b"HTTP/1.1 200 OK\r\n"], False, 2),
        ([HELLO, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"], False, 2),
    ],
    ids=["length", "chunked", "in shreds", "interim", "until the end", "closing", "old", "too much", "more later"],
)
async def test_answer_is_read_whole_and_a_connection_used_again_only_where_it_may(
    says: list[bytes], closes: bool, connections: int
) -> None:
    async with server_that(*says, closes=closes) as (found, visits):
        assert await answer_of(found) == b"hello"
        await asyncio.sleep(0.05)
        assert await answer_of(found) == b"hello"
        assert visits.connections == connections


@pytest.mark.parametrize(
    "says",
    [
        b"",
        HELLO[:20],
        HELLO[:-1],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"SSH-2.0-OpenSSH\r\n",
    ],
)
async def test_answer_that_breaks_is_a_failure(says: bytes) -> None:
    async with server_that(says, closes=True) as (found, _):
        with pytest.raises(Interrupted, match="broke the connection"):
            await answer_of(found)


async def test_head_that_does_not_end_is_a_failure() -> None:
    async with server_that(b"HTTP/1.1 200 OK\r\nX: " + b"x" * limits.LARGEST_HEAD_BYTES) as (found, visits):
        with pytest.raises(Interrupted, match="endless"):
            await answer_of(found)
        await visits.left.wait()


@pytest.mark.parametrize(
    "behind",
    [HELLO, HELLO * 100, HELLO[:20], b"garbage", b"\0", b"HTTP/1.1 100 Continue\r\n\r\n"],
    ids=["an answer", "a hundred", "half of one", "garbage", "a zero", "an interim one"],
)
async def test_connection_with_more_behind_an_answer_is_never_used_again(behind: bytes) -> None:
    async with server_that(HELLO + behind) as (found, visits):
        assert [await answer_of(found) for _ in range(5)] == [b"hello"] * 5
        assert visits.connections == 5


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MANY = 4 * limits.LARGEST_FRAMING_BYTES
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("says", "what"),
    [
        ([b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * (limits.MOST_HEADERS + 1) + b"\r\n"], "an endless head"),
        ([INTERIM * 10_000], "an endless head"),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", *[INTERIM * 1000] * 4], "an endless head"),
        ([CHUNKED + b"1;" + b"x" * MANY], "too much around"),
        ([CHUNKED + b"0\r\nX: " + b"x" * MANY], "too much around"),
        ([CHUNKED + b"5\r\nhello\r\n0\r\n", b"X: y\r\n" * (MANY // 6)], "too much around"),
        ([CHUNKED + (b"1;" + b"x" * 4000 + b"\r\na\r\n") * (MANY // 4000)], "too much around"),
    ],
    ids=["headers", "interims", "interims later", "extension", "trailer", "trailers", "extensions"],
)
async def test_what_stands_around_an_answer_is_bounded(says: list[bytes], what: str) -> None:
    async with server_that(*says) as (found, visits):
        with pytest.raises(Interrupted, match=what):
            await answer_of(found)
        await visits.left.wait()


async def test_what_generous_servers_send_around_an_answer_is_not_too_much() -> None:
    headers = b"".join(b"X%d: %b\r\n" % (number, b"x" * 200) for number in range(200))
    chunks = b"".join(b"00000001;a=b\r\n%c\r\n" % letter for letter in b"hello" * 1000)
    says = CHUNKED[:-2] + headers + b"\r\n" + chunks + b"0\r\n" + headers + b"\r\n"
    async with server_that(INTERIM * 20 + says) as (found, visits):
        assert [await answer_of(found) for _ in range(2)] == [b"hello" * 1000] * 2
        assert visits.connections == 1


async def test_trailers_are_no_headers() -> None:
    async with server_that(CHUNKED + b"5\r\nhello\r\n0\r\nRetry-After: 7\r\n\r\n") as (found, _):
        connection = await ask(found)
        assert await connection.read() == b"hello"
        assert await connection.read() == b""
        assert connection.response.header(b"retry-after") == ""
        connection.release()


async def test_answer_that_is_not_read_to_its_end_closes_the_connection_at_once() -> None:
    async with server_that(HELLO[:-2]) as (found, visits):
        connection = await ask(found)
        assert await connection.read() == b"hel"
        connection.release()
        await visits.left.wait()


async def test_connection_that_is_not_used_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "KEEP_ALIVE_S", 0.01)
    async with server_that(HELLO) as (found, visits):
        await answer_of(found)
        await visits.left.wait()
        await answer_of(found)
        assert visits.connections == 2


async def test_server_that_closes_an_idle_connection_is_asked_on_a_new_one() -> None:
    async with server_that(HELLO, closes=True) as (found, visits):
        await answer_of(found)
        await visits.left.wait()
        await asyncio.sleep(0.01)
        await answer_of(found)
        assert visits.connections == 2


async def test_server_may_refuse_a_big_body_before_it_has_read_it() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        # It does not read on, and the kernel has room for a part of it alone.
        await asyncio.sleep(60)

    async with serving(refuse) as found:
        connection = await ask(found, b"x" * 32 * 1024 * 1024)
        assert (connection.response.status, await connection.read()) == (413, b"no")
        connection.release()
        assert not connection.is_open


async def test_answer_that_is_not_read_is_left_with_its_server() -> None:
    written = 0

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x" * 4096)
                await writer.drain()
                written += 4096

    async with serving(pour) as found, asyncio.timeout(30):
        connection = await ask(found)
        before = -1
        while before != written:
            before = written
            await asyncio.sleep(0.05)
        received = len(await connection.read())
        assert 0 < received <= http_connection.READ_AHEAD_BYTES + 256 * 1024
        while before == written:
            received += len(await connection.read())
            await asyncio.sleep(0)
        connection.release()


async def test_silence_is_measured_from_the_last_byte() -> None:
    async with server_that(HELLO[:-3], b"l", b"l") as (found, _):
        connection = await ask(found)
        connection.limit_silence(0.2)
        assert await connection.read() == b"he"
        assert b"".join([await connection.read(), await connection.read()]) == b"ll"
        with pytest.raises(Interrupted, match="in time"):
            await connection.read()
        connection.release()
