"""Bodies in very many pieces."""

import asyncio
import contextlib

import pytest

from edge.wire.body_reader import LARGEST_BODY_BYTES
from services.chassis.http.body_pacer import (
    FREE_PIECES,
    ORDINARY_PIECE_BYTES,
    PIECES_PER_S,
    SLICE_BYTES,
    BodyPacer,
)
from services.chassis.http.connection import LARGEST_FRAMING_BYTES, ServerConnection
from services.chassis.http.unread_body import MOST_PASSED_OVER_PIECES
from tests.services.chassis.http.hello_server import exchange, is_error_shape

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
        take = ServerConnection.on_body

        def count(protocol: ServerConnection, body: bytes) -> None:
            if not self._in_this_turn:
                protocol.loop.call_soon(self._end_turn)
            self._in_this_turn += 1
            self.pieces += 1
            take(protocol, body)

        monkeypatch.setattr(ServerConnection, "on_body", count)

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
    """A piece may have an extension of any length, which is not read."""
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
