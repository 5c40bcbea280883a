"""A connection's waits, without a timer for each thing."""

import asyncio
import contextlib
import io
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from edge.http.client_limits import (
    FREE_PIECES,
    ORDINARY_PIECE_BYTES,
    PIECES_PER_S,
    SLICE_BYTES,
    BodyPacer,
    ConnectionLimit,
    IdleTimer,
    most_connections,
)
from edge.http.connection import LARGEST_FRAMING_BYTES, EdgeProtocol
from edge.http.server import HttpServer
from edge.http.unread_input import MOST_PASSED_OVER_PIECES
from edge.wire.requests import LARGEST_BODY_BYTES
from services.chassis.telemetry.log import Log
from tests.edge.hello import BIG_PIECE, PIECE, PIECES, hello
from tests.edge.hello_server import exchange, is_error_shape, served
from tests.support.fakes import FakeClock
from tests.support.waiting import until


class Clockwork:
    """A loop's clock and timers, which go on when they are told to."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, when_s: float, callback: Callable[[], None]) -> "Timer":
        self.timers.append(Timer(self, when_s, callback))
        return self.timers[-1]

    def go_on(self, seconds: float) -> None:
        self.now_s += seconds
        for timer in [timer for timer in self.timers if timer.when() <= self.now_s]:
            self.timers.remove(timer)
            timer.callback()


class Timer:
    def __init__(self, clockwork: Clockwork, when_s: float, callback: Callable[[], None]) -> None:
        self._clockwork = clockwork
        self._when_s = when_s
        self.callback = callback

    def when(self) -> float:
        return self._when_s

    def cancel(self) -> None:
        self._clockwork.timers.remove(self)


class Scene:
    def __init__(self) -> None:
        self.clockwork = Clockwork()
        loop: Any = self.clockwork
        self.idle_timer = IdleTimer(loop)
        self.late: list[str] = []

    def headers_are_late(self) -> None:
        self.late.append("headers")

    def request_is_late(self) -> None:
        self.late.append("request")


def test_what_does_not_come_in_time_is_late_once() -> None:
    scene = Scene()
    scene.idle_timer.start(10, scene.headers_are_late)
    scene.clockwork.go_on(9)
    assert scene.late == []
    scene.clockwork.go_on(1)
    scene.clockwork.go_on(100)
    assert scene.late == ["headers"]


def test_what_came_is_not_late() -> None:
    scene = Scene()
    scene.idle_timer.start(10, scene.headers_are_late)
    scene.idle_timer.clear()
    scene.clockwork.go_on(100)
    assert scene.late == []


def test_time_counts_from_when_it_was_last_given() -> None:
    scene = Scene()
    for _ in range(5):
        scene.idle_timer.start(10, scene.request_is_late)
        scene.clockwork.go_on(9)
        scene.idle_timer.clear()
    scene.idle_timer.start(10, scene.request_is_late)
    scene.clockwork.go_on(9)
    assert scene.late == []
    scene.clockwork.go_on(1)
    assert scene.late == ["request"]


def test_less_patience_than_before_is_kept_too() -> None:
    scene = Scene()
    scene.idle_timer.start(75, scene.request_is_late)
    scene.idle_timer.start(10, scene.headers_are_late)
    scene.clockwork.go_on(10)
    assert scene.late == ["headers"]


def test_any_number_of_requests_take_one_timer() -> None:
    scene = Scene()
    for _ in range(100):
        scene.idle_timer.start(75, scene.request_is_late)
        scene.clockwork.go_on(0.01)
        scene.idle_timer.clear()
    assert len(scene.clockwork.timers) == 1


async def test_real_loop_does_the_same() -> None:
    late = asyncio.Event()
    IdleTimer(asyncio.get_running_loop()).start(0.01, late.set)
    async with asyncio.timeout(60):
        await late.wait()


def test_ended_patience_leaves_no_timer_behind() -> None:
    scene = Scene()
    scene.idle_timer.start(10, scene.headers_are_late)
    scene.idle_timer.close()
    assert scene.clockwork.timers == []


async def test_client_that_does_not_read_is_cut_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_off, lose = asyncio.Event(), EdgeProtocol.connection_lost

    def lose_and_tell(protocol: EdgeProtocol, error: Exception | None) -> None:
        lose(protocol, error)
        cut_off.set()

    monkeypatch.setattr(EdgeProtocol, "connection_lost", lose_and_tell)
    async with served(stalled_reader_s=0.1) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setblocking(False)
            client.sendall(b"GET /much HTTP/1.1\r\nHost: test\r\n\r\n")
            received_bytes = 0
            async with asyncio.timeout(60):
                await cut_off.wait()
                while received := await asyncio.get_running_loop().sock_recv(client, 1 << 20):
                    received_bytes += len(received)
            assert 0 < received_bytes < PIECES * len(PIECE)


async def test_client_that_reads_slowly_is_not_cut_off() -> None:
    # Long enough for a busy machine, and shorter than all of the reading.
    async with served(stalled_reader_s=3) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /big HTTP/1.1\r\nHost: test\r\n\r\n")
        received_bytes = 0
        async with asyncio.timeout(60):
            while received_bytes < len(BIG_PIECE):
                received = await reader.read(256 * 1024)
                assert received, "cut off while it read"
                received_bytes += len(received)
                await asyncio.sleep(0.02)
        writer.close()


CHUNKED = b"POST %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
TINY = b"1\r\nx\r\n"
LAST = b"0\r\n\r\n"


def begun(owing: set[BodyPacer] | None = None) -> BodyPacer:
    """Spends free pieces."""
    pace = BodyPacer(set() if owing is None else owing)
    pace.begin()
    assert pace.charge(1 + FREE_PIECES, 0) == 0
    return pace


def test_pieces_of_an_ordinary_size_are_free_however_many_there_are() -> None:
    pace = begun()
    pieces_of_a_slice = SLICE_BYTES // ORDINARY_PIECE_BYTES
    assert {pace.charge(pieces_of_a_slice, SLICE_BYTES) for _ in range(10_000)} == {0}


def test_many_small_pieces_have_to_be_waited_for() -> None:
    pace = begun()
    assert pace.charge(1 + PIECES_PER_S, 0) == pytest.approx(1)
    # What was paid is paid.
    assert pace.charge(1 + PIECES_PER_S // 2, 0) == pytest.approx(0.5)


def test_those_who_send_many_pieces_share_what_there_is_time_for() -> None:
    owing: set[BodyPacer] = set()
    first, second = begun(owing), begun(owing)
    assert first.charge(1 + PIECES_PER_S, 0) == pytest.approx(1)
    assert second.charge(1 + PIECES_PER_S, 0) == pytest.approx(2)
    first.close()
    assert second.charge(1 + PIECES_PER_S, 0) == pytest.approx(1)
    second.close()
    assert owing == set()


def test_little_work_is_not_waited_for_each_time_but_together() -> None:
    pace = begun()
    rests = [pace.charge(2, 0) for _ in range(PIECES_PER_S)]
    assert 1 <= sum(1 for rest_s in rests if rest_s) <= 1000
    assert sum(rests) == pytest.approx(1, rel=0.01)


def test_next_request_begins_with_free_pieces_again() -> None:
    pace = begun()
    pace.charge(PIECES_PER_S, 0)
    pace.begin()
    assert pace.charge(FREE_PIECES, 0) == 0


class Readings:
    """Counts how much of a body is taken in one turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most_in_a_turn = 0
        self.pieces = 0
        self._in_this_turn = 0
        take = EdgeProtocol.on_body

        def count(protocol: EdgeProtocol, body: bytes) -> None:
            if not self._in_this_turn:
                protocol.loop.call_soon(self._end_turn)
            self._in_this_turn += 1
            self.pieces += 1
            take(protocol, body)

        monkeypatch.setattr(EdgeProtocol, "on_body", count)

    def _end_turn(self) -> None:
        self.most_in_a_turn = max(self.most_in_a_turn, self._in_this_turn)
        self._in_this_turn = 0


async def test_tiny_pieces_hold_the_loop_for_no_longer_than_a_slice(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = Readings(monkeypatch)
    pieces = 20_000
    head, body = await exchange(port, CHUNKED % b"/echo" + TINY * pieces + LAST)
    assert head.startswith(b"HTTP/1.1 200 ")
    # It is slow, but it is served.
    assert body.endswith(b"\n\n" + b"x" * pieces)
    assert readings.most_in_a_turn <= FREE_PIECES + SLICE_BYTES // len(TINY) + 1


async def write_on(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(TINY * 1000)
        await writer.drain()
        await asyncio.sleep(0.01)


async def test_tiny_pieces_of_who_was_refused_are_not_taken_without_end(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four connections of anybody, without a key, kept an edge busy."""
    readings = Readings(monkeypatch)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CHUNKED % b"/")
    async with asyncio.timeout(30):
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.write(TINY * (2 * MOST_PASSED_OVER_PIECES) + LAST)
        with pytest.raises(ConnectionError):
            await write_on(writer)
    assert readings.pieces <= MOST_PASSED_OVER_PIECES + SLICE_BYTES // len(TINY) + 1
    writer.transport.abort()


async def test_body_in_ordinary_pieces_may_be_finished_by_who_was_refused(port: int) -> None:
    """Also where it comes line by line."""
    piece = b"%x\r\n%b\r\n" % (200, bytes(200))
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CHUNKED % b"/")
    async with asyncio.timeout(30):
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.write(piece * 5_000 + LAST)
        await writer.drain()
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("path", [b"/echo", b"/"])
async def test_what_is_said_beside_the_pieces_counts_too(port: int, path: bytes) -> None:
    """A piece may have an extension of any length, and nobody reads it."""
    piece = b"1;x=" + b"y" * 60_000 + b"\r\nx\r\n"
    enough = (LARGEST_BODY_BYTES + 2 * LARGEST_FRAMING_BYTES) // len(piece)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CHUNKED % path)
    sent = 0
    answer = b""
    async with asyncio.timeout(30):
        with contextlib.suppress(ConnectionError):
            while sent < 10 * enough:
                writer.write(piece)
                await writer.drain()
                sent += 1
        # What was not read may take the refusal with it.
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
    assert sent < 9 * enough
    if answer.startswith(b"HTTP/1.1 400 "):
        assert is_error_shape(answer.partition(b"\r\n\r\n")[2])
    writer.transport.abort()


GET = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"


class Server:
    def __init__(self, most: int) -> None:
        self.said = io.StringIO()
        self.clock = FakeClock()
        self.connections = ConnectionLimit(most, self.clock, Log("edge", self.said))
        self.port = 0

    @property
    def lines(self) -> int:
        return self.said.getvalue().count("connections.full")

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Server"]:
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = listener.getsockname()[1]
        server = HttpServer(hello, 1, 60, connections=self.connections)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield self
        server.should_exit = True
        await serving

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


async def test_who_has_waited_longest_without_a_request_makes_room() -> None:
    async with Server(3).opened() as server, asyncio.timeout(30):
        clients = []
        for _ in range(5):
            clients.append(await server.connect())
            await until(lambda: server.connections.open == min(len(clients), 3))
        for reader, _ in clients[:2]:
            assert await reader.read() == b""
        for reader, writer in clients[2:]:
            writer.write(GET % b"/")
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        assert server.connections.idle_closed.value == 2
        for _, writer in clients:
            writer.close()


async def test_nobody_who_is_being_answered_makes_room() -> None:
    async with Server(2).opened() as server, asyncio.timeout(30):
        busy = [await server.connect() for _ in range(2)]
        for reader, writer in busy:
            writer.write(GET % b"/much")
            await reader.readuntil(b"\r\n\r\n")
        reader, writer = await server.connect()
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503 ")
        assert is_error_shape(body)
        assert server.connections.refused.value == 1
        assert server.connections.open == 2
        for _, each in [*busy, (reader, writer)]:
            each.transport.abort()
        # There is room again.
        await until(lambda: server.connections.open == 0)
        reader, writer = await server.connect()
        writer.write(GET % b"/")
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_log_says_so_once_a_minute() -> None:
    server = Server(1)
    for _ in range(5):
        server.connections.note_full()
    assert server.lines == 1
    server.clock.advance(61)
    server.connections.note_full()
    assert server.lines == 2


@pytest.mark.parametrize(("asked", "soft", "most"), [(10_000, 65_536, 10_000), (10_000, 1_024, 768), (500, 1_024, 500)])
def test_connections_stay_well_below_the_descriptors(
    asked: int, soft: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_connections(asked) == most
