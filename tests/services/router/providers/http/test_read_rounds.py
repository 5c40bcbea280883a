"""Connections that are read in rounds: how many wakeups that takes, and that nothing is lost by it."""

import asyncio
import contextlib
import gc
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.origin import Origin, RequestHead
from services.router.providers.http.answer_connection import AnswerConnection, AnswerConnections
from services.router.providers.http.read_rounds import LONGEST_ROUND_S, NO_FILE, ROUND_S, ReadRounds
from tests.services.router.providers.certificates import make_certificate, server_context
from tests.support.servers.byte_server import read_request
from tests.support.waiting import until

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
NEVER_S = 3600.0


def framed(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


class Sockets:
    """Pairs of sockets, one end of each in the rounds."""

    def __init__(self, count: int, rounds: ReadRounds) -> None:
        self.pairs = [socket.socketpair() for _ in range(count)]
        self.read: list[bytes] = []
        for ours, _ in self.pairs:
            ours.setblocking(False)
            rounds.add(ours.fileno(), lambda ours=ours: self.read.append(ours.recv(100)))  # type: ignore[misc]

    def send(self, number: int, data: bytes) -> None:
        self.pairs[number][1].send(data)

    def close(self) -> None:
        for ours, theirs in self.pairs:
            ours.close()
            theirs.close()


@asynccontextmanager
async def sockets(count: int, rounds: ReadRounds) -> AsyncIterator[Sockets]:
    opened = Sockets(count, rounds)
    try:
        yield opened
    finally:
        rounds.close()
        opened.close()


async def test_what_arrives_after_a_round_waits_for_the_next_and_is_read_in_it_together() -> None:
    rounds = ReadRounds(round_s=NEVER_S)
    async with sockets(5, rounds) as opened:
        opened.send(0, b"first")
        await until(lambda: len(opened.read) > 0)
        assert opened.read == [b"first"]
        for number in range(5):
            opened.send(number, b"later")
        for _ in range(20):
            await asyncio.sleep(0)
        assert opened.read == [b"first"]
        rounds._begin_round()
        assert opened.read == [b"first", *[b"later"] * 5]


async def test_rounds_are_longer_with_few_or_many_connections_and_never_longer_than_a_limit() -> None:
    rounds = ReadRounds()
    rounds._readers = dict.fromkeys(range(10), lambda: None)
    assert ROUND_S < rounds.round_s < LONGEST_ROUND_S
    rounds._readers = dict.fromkeys(range(50), lambda: None)
    assert rounds.round_s == ROUND_S
    rounds._readers = dict.fromkeys(range(150), lambda: None)
    assert ROUND_S < rounds.round_s < LONGEST_ROUND_S
    rounds._readers = dict.fromkeys(range(1000), lambda: None)
    assert rounds.round_s == LONGEST_ROUND_S
    rounds.close()


async def test_an_empty_round_is_followed_by_one_at_once_when_something_arrives() -> None:
    rounds = ReadRounds(round_s=NEVER_S)
    async with sockets(5, rounds) as opened:
        opened.send(0, b"first")
        await until(lambda: len(opened.read) > 0)
        rounds._begin_round()
        opened.send(1, b"second")
        await until(lambda: len(opened.read) == 2)


async def test_few_connections_are_read_as_soon_as_something_arrives() -> None:
    rounds = ReadRounds(round_s=NEVER_S)
    async with sockets(3, rounds) as opened:
        for number in range(3):
            opened.send(number, b"now")
            await until(lambda number=number: len(opened.read) == number + 1)  # type: ignore[misc]


async def test_rounds_go_on_after_a_reader_has_failed() -> None:
    rounds = ReadRounds(round_s=0.001)

    def fail() -> None:
        rounds.remove(ours.fileno(), fail)
        raise RuntimeError

    ours, theirs = socket.socketpair()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    async with sockets(5, rounds) as opened:
        rounds.add(ours.fileno(), fail)
        theirs.send(b"bad")
        opened.send(0, b"good")
        await until(lambda: len(opened.read) > 0)
        opened.send(1, b"better")
        await until(lambda: len(opened.read) == 2)
    ours.close()
    theirs.close()


class Server:
    """Writes the beginning of a response, and the rest when it is told to."""

    def __init__(self) -> None:
        self.writers: list[asyncio.StreamWriter] = []
        self.requests = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await read_request(reader)
                self.requests += 1
                writer.write(HEAD + framed(b"begun"))


Serving = Callable[[], contextlib.AbstractAsyncContextManager[tuple[AnswerConnections, Server]]]


@pytest.fixture(params=["plain", "tls"])
def serving(request: pytest.FixtureRequest, tmp_path: Path) -> Serving:
    ours, theirs = None, None
    if request.param == "tls":
        certificate = make_certificate(tmp_path, "localhost")
        ours, theirs = ssl.create_default_context(cafile=str(certificate)), server_context(certificate)

    @asynccontextmanager
    async def begin() -> AsyncIterator[tuple[AnswerConnections, Server]]:
        server = Server()
        listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=theirs)
        pool = AnswerConnections(Origin("localhost", listener.sockets[0].getsockname()[1], ours), 30.0)
        pool._rounds = ReadRounds(round_s=0.001, least_connections=1)
        try:
            yield pool, server
        finally:
            listener.close()
            await pool.aclose()
            for writer in server.writers:
                writer.close()

    return begin


class Reader:
    """Takes whatever arrives."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def take_body(self, received: bytes) -> bool:
        self.taken.append(received)
        return True


async def begun(pool: AnswerConnections) -> AnswerConnection:
    connection = await pool.acquire()
    assert isinstance(connection, AnswerConnection)
    connection.answer_within(30)
    head = RequestHead(Origin("localhost", 80), {})
    await connection.post(head.for_body("/", b"{}"), b"{}")
    assert await connection.read() == b"begun"
    connection.read_in_rounds()
    assert connection._round_reader is not None
    assert connection._round_reader._file_no != NO_FILE
    return connection


async def test_a_response_is_read_in_rounds_to_its_end_and_its_connection_used_again(serving: Serving) -> None:
    async with serving() as (pool, server):
        for _ in range(2):
            connection = await begun(pool)
            reader = Reader()
            taken = reader.taken
            reading = asyncio.create_task(connection.read_by(reader))
            await asyncio.sleep(0)
            for number in range(20):
                server.writers[0].write(framed(b"%d," % number))
                await until(lambda taken=taken, number=number: b"".join(taken).endswith(b"%d," % number))  # type: ignore[misc]
            server.writers[0].write(b"0\r\n\r\n")
            assert await reading == b""
            assert b"".join(taken) == b"".join(b"%d," % number for number in range(20))
            assert connection.response.is_whole
            connection.release()
        assert (len(server.writers), server.requests) == (1, 2)


async def test_a_server_that_leaves_in_the_middle_is_noticed(serving: Serving) -> None:
    async with serving() as (pool, server):
        connection = await begun(pool)
        reading = asyncio.create_task(connection.read_by(Reader()))
        server.writers[0].close()
        with pytest.raises(Interrupted):
            await reading
        connection.release()


async def test_a_response_that_is_not_read_is_left_in_the_kernel(serving: Serving) -> None:
    async with serving() as (pool, server):
        connection = await begun(pool)
        for _ in range(100):
            server.writers[0].write(framed(b"x" * 10_000))
        await until(lambda: connection._is_reading_paused)
        assert connection._round_reader is not None
        assert connection._round_reader._file_no == NO_FILE
        server.writers[0].write(b"0\r\n\r\n")
        received = 0
        while part := await connection.read():
            received += len(part)
        assert received == 1_000_000
        connection.release()


async def test_a_closed_connection_leaves_the_rounds(serving: Serving) -> None:
    async with serving() as (pool, _):
        connection = await begun(pool)
        connection.release()
        assert not pool._rounds._readers
        assert not connection.is_open


@pytest.mark.parametrize("in_rounds", [True, False])
async def test_a_timeout_that_fires_late_spares_a_response_that_is_in_the_socket(
    serving: Serving, in_rounds: bool
) -> None:
    async with serving() as (pool, server):
        connection = await begun(pool)
        connection.limit_silence(30)
        if not in_rounds:
            connection._stop_reading_instead()
        reader = Reader()
        taken = reader.taken
        reading = asyncio.create_task(connection.read_by(reader))
        await asyncio.sleep(0)
        server.writers[0].write(framed(b"late"))
        # As after a process has stood still: timers run before anything is read.
        connection._on_deadline()
        await until(lambda: taken == [b"late"])
        server.writers[0].write(framed(b"more"))
        await until(lambda: taken == [b"late", b"more"])
        server.writers[0].write(b"0\r\n\r\n")
        assert await reading == b""
        connection.release()


async def test_a_server_that_is_silent_for_too_long_is_given_up(serving: Serving) -> None:
    async with serving() as (pool, _):
        connection = await begun(pool)
        connection.limit_silence(0.01)
        with pytest.raises(Interrupted, match="in time"):
            await connection.read_by(Reader())
        connection.release()


async def test_a_server_that_never_stops_sending_does_not_postpone_the_deadline_of_its_response(
    serving: Serving,
) -> None:
    async with serving() as (pool, server):
        connection = await begun(pool)
        connection.answer_within(0.01)

        async def read_on() -> None:
            for _ in range(100_000):
                server.writers[0].write(framed(b"x"))
                await connection.read()

        with pytest.raises(Interrupted, match="in time"):
            await read_on()
        connection.release()


async def test_rounds_of_a_provider_that_is_gone_are_forgotten() -> None:
    rounds, (here, there) = ReadRounds(), socket.socketpair()
    with here, there:
        rounds.add(here.fileno(), here.close)
        rounds.remove(here.fileno(), here.close)
        kept = weakref.ref(rounds)
        del rounds
        gc.collect()
        assert kept() is None
