"""Requests that come before the last one is answered."""

import asyncio

import pytest

from services.chassis.http.connection import LARGEST_PIPELINED_BYTES, MOST_EARLY_REQUESTS, ServerConnection
from tests.services.chassis.http.hello_server import is_error_shape, write_for_ever

LATE = b"GET /late HTTP/1.1\r\nhost: x\r\n\r\n"
SLOW = b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n"
ECHO = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\nbody"
LAST = b"POST /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nlast"


async def ask_early(port: int, *pieces: bytes) -> bytes:
    """All that comes back for what is sent in pieces, a little apart."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0.02)
        answers = await reader.read()
    writer.close()
    return answers


@pytest.mark.parametrize("first", [LATE, SLOW, LATE + SLOW])
@pytest.mark.parametrize("cut", range(0, len(ECHO) + 1, 9))
async def test_requests_are_answered_in_their_turn_however_they_come(port: int, first: bytes, cut: int) -> None:
    answers = await ask_early(port, first + ECHO[:cut], ECHO[cut:], ECHO + LAST)
    answered = [answers.index(first) for first in (b"hello", b"\n\nbody")]
    assert answered == sorted(answered)
    assert answers.count(b"\n\nbody") == 2
    assert answers.endswith(b"\n\nlast")


@pytest.mark.parametrize("first", [LATE, SLOW])
async def test_who_sends_too_much_ahead_gets_one_answer_and_no_more(port: int, first: bytes) -> None:
    answers = await ask_early(port, first + ECHO, bytes(2 * LARGEST_PIPELINED_BYTES), ECHO)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b"hello" in answers


async def test_who_sends_too_many_requests_at_once_gets_one_answer_and_no_more(port: int) -> None:
    answers = await ask_early(port, LATE + ECHO * 50 * MOST_EARLY_REQUESTS)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert b"\r\nconnection: close\r\n" in answers
    assert answers.endswith(b"hello")


async def test_requests_beyond_those_are_not_even_looked_at(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read holds thousands of small ones, and each costs more than its bytes say."""
    begun = 0
    begin = ServerConnection.on_message_begin

    def count(self: ServerConnection) -> None:
        nonlocal begun
        begun += 1
        begin(self)

    monkeypatch.setattr(ServerConnection, "on_message_begin", count)
    await ask_early(port, LATE + ECHO * 50 * MOST_EARLY_REQUESTS)
    assert begun <= MOST_EARLY_REQUESTS + 3


async def test_what_comes_too_early_is_not_listened_to_without_end(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /much HTTP/1.1\r\nhost: x\r\n\r\n")
    async with asyncio.timeout(60):
        await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(ConnectionError):
            await write_for_ever(writer)
    writer.close()


@pytest.mark.parametrize("first", [LATE, SLOW, LATE + ECHO, ECHO + SLOW])
@pytest.mark.parametrize("is_at_once", [True, False])
@pytest.mark.parametrize(
    "garbage",
    [
        b"and now for something else\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nnone\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: none\r\n\r\n",
    ],
)
async def test_garbage_disturbs_no_answer_to_what_came_before(
    port: int, first: bytes, is_at_once: bool, garbage: bytes
) -> None:
    answers = await ask_early(port, first + garbage) if is_at_once else await ask_early(port, first, garbage)
    before, _, refusal = answers.rpartition(b"HTTP/1.1 400 ")
    assert before.count(b"HTTP/1.1 200 ") == first.count(b"HTTP/1.1")
    assert b"hello" in before
    assert is_error_shape(refusal.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_late_headers_disturb_no_answer_to_what_came_before(
    port: int, is_at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerConnection, "headers_timeout_s", 0.1)
    half = ECHO[:20]
    answers = await ask_early(port, LATE + half) if is_at_once else await ask_early(port, LATE, half)
    assert answers.startswith(b"HTTP/1.1 200 ")
    # Its headers are waited for no longer than those of any other.
    assert b"helloHTTP/1.1 408 " in answers
