"""Our client and h11, a well-kept reader of HTTP, on the same responses: the same verdict, and the same body.

Where they differ, ours must be the stricter one, or the difference stands in `OURS_ALONE`, with its reason.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import h11
import pytest

from services.chassis.http_client.connection import HttpConnection
from services.chassis.http_client.failures import Interrupted
from services.chassis.http_client.response import LARGEST_HEAD_BYTES
from tests.campaigns.fuzz.answers import Body
from tests.campaigns.fuzz.framing import random_frame

OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = OK + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Verdict:
    # None: refused.
    body: bytes | None
    status: int = 0
    # Whether the connection may be used again.
    is_kept: bool = False


REFUSED = Verdict(None)


class _Owner:
    def __init__(self) -> None:
        self.is_kept = False

    def distrust(self) -> None:
        pass

    def take_back(self, connection: HttpConnection) -> bool:
        self.is_kept = True
        return True

    def forget(self, connection: HttpConnection) -> None:
        pass


class _Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self._is_closing = False

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        self._is_closing = True

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def verdict_of_ours(writes: list[bytes], *, closes: bool) -> Verdict:
    owner, transport = _Owner(), _Transport()
    connection = HttpConnection(owner)
    connection.connection_made(transport)
    connection.answer_within(60)
    asked = asyncio.create_task(connection.post(b"POST / HTTP/1.1\r\n\r\n", b""))
    await asyncio.sleep(0)
    for write in writes:
        if transport.is_closing():
            break
        connection.data_received(write)
    if closes or transport.is_closing():
        connection.eof_received()
        transport.abort()
        connection.connection_lost(None)
    elif not connection.response.is_whole:
        # Nothing more comes: what is not there by now never will be, also in the last read after the deadline.
        connection._on_deadline()
        connection._on_deadline()
    body = b""
    try:
        await asked
        while piece := await connection.read():
            body += piece
    except Interrupted:
        return REFUSED
    finally:
        connection.release()
        connection._deadline.close()
    return Verdict(body, connection.response.status, owner.is_kept and not closes)


def verdict_of_h11(writes: list[bytes], *, closes: bool) -> Verdict:
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD_BYTES)
    client.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
    client.send(h11.EndOfMessage())
    status, body, is_whole = 0, b"", False
    try:
        for write in [*writes, b""] if closes else writes:
            client.receive_data(write)
            while not is_whole and not isinstance(event := client.next_event(), type(h11.NEED_DATA)):
                if event is h11.PAUSED:
                    break
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    is_whole = True
    except h11.RemoteProtocolError:
        if not is_whole:
            return REFUSED
    if not is_whole or not status:
        return REFUSED
    is_kept = client.their_state is h11.DONE and not client.trailing_data[0] and not closes
    return Verdict(body, status, is_kept)


# What nearly every server says, and what careful ones refuse. Each as it comes, and whether the server then closes.
CORPUS: dict[str, tuple[bytes, bool]] = {
    "length": (LENGTH, False),
    "length, then closed": (LENGTH, True),
    "nothing": (b"", True),
    "only a status line": (OK, True),
    "cut in the head": (LENGTH[:25], True),
    "cut in the body": (LENGTH[:-1], True),
    "longer than it says": (LENGTH + b"!", False),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", False),
    "empty reason": (b"HTTP/1.1 200 \r\nContent-Length: 5\r\n\r\nhello", False),
    "status of two digits": (b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n", False),
    "status of four digits": (b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", False),
    "not HTTP": (b"SSH-2.0-OpenSSH\r\n", True),
    "small letters": (b"http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", False),
    "version 1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", True),
    "version 2.0": (b"HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", False),
    "version 0.9": (b"HTTP/0.9 200 OK\r\nContent-Length: 5\r\n\r\nhello", False),
    "closing": (OK + b"Connection: close\r\nContent-Length: 5\r\n\r\nhello", False),
    "until the end": (OK + b"\r\nhello", True),
    "until an end that does not come": (OK + b"\r\nhello", False),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", False),
    "not modified": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", False),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH, False),
    "early hints": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + LENGTH, False),
    "switching": (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nhello", True),
    "two answers": (LENGTH + LENGTH, False),
    "an answer and garbage": (LENGTH + b"garbage", False),
    "an answer and a line end": (LENGTH + b"\r\n", False),
    "two lengths, the same": (OK + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", False),
    "two lengths": (OK + b"Content-Length: 5\r\nContent-Length: 4\r\n\r\nhello", False),
    "list of lengths": (OK + b"Content-Length: 5, 5\r\n\r\nhello", False),
    "length with a sign": (OK + b"Content-Length: +5\r\n\r\nhello", False),
    "negative length": (OK + b"Content-Length: -5\r\n\r\nhello", False),
    "length in hexadecimal": (OK + b"Content-Length: 0x5\r\n\r\nhello", False),
    "length of nothing": (OK + b"Content-Length: \r\n\r\nhello", False),
    "endless length": (OK + b"Content-Length: %b\r\n\r\nhello" % (b"9" * 40), True),
    "length and chunks": (CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n5\r\nhello\r\n0\r\n\r\n", False),
    "chunks and length": (OK + b"Content-Length: 5\r\n" + CHUNKED[len(OK) :] + b"5\r\nhello\r\n0\r\n\r\n", False),
    "two encodings": (CHUNKED[:-2] + CHUNKED[len(OK) :] + b"5\r\nhello\r\n0\r\n\r\n", False),
    "chunked": (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", False),
    "chunks in capitals": (CHUNKED.replace(b"chunked", b"Chunked") + b"5\r\nhello\r\n0\r\n\r\n", False),
    "chunked twice": (CHUNKED.replace(b"chunked", b"chunked, chunked") + b"5\r\nhello\r\n0\r\n\r\n", False),
    "packed and chunked": (CHUNKED.replace(b"chunked", b"gzip, chunked") + b"5\r\nhello\r\n0\r\n\r\n", False),
    "identity": (CHUNKED.replace(b"chunked", b"identity") + b"hello", True),
    "chunk of a large size": (CHUNKED + b"fffffffffffffffff\r\nhello\r\n0\r\n\r\n", True),
    "chunk of no size": (CHUNKED + b"\r\nhello\r\n0\r\n\r\n", True),
    "chunk of a wrong size": (CHUNKED + b"4\r\nhello\r\n0\r\n\r\n", True),
    "chunk of a size in capitals": (CHUNKED + b"A\r\nhellohello\r\n0\r\n\r\n", False),
    "chunk with zeros": (CHUNKED + b"0000005\r\nhello\r\n0\r\n\r\n", False),
    "chunk with an extension": (CHUNKED + b'5;a=b;c="d"\r\nhello\r\n0\r\n\r\n', False),
    "chunk with a space": (CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n", False),
    "chunks without an end": (CHUNKED + b"5\r\nhello\r\n", True),
    "trailers": (CHUNKED + b"5\r\nhello\r\n0\r\nX: y\r\n\r\n", False),
    "line feeds": (LENGTH.replace(b"\r\n", b"\n"), False),
    "chunks by line feeds": (CHUNKED + b"5\nhello\n0\n\n", True),
    "carriage returns": (LENGTH.replace(b"\r\n", b"\r"), True),
    "header without a colon": (OK + b"X\r\nContent-Length: 5\r\n\r\nhello", False),
    "header without a name": (OK + b": x\r\nContent-Length: 5\r\n\r\nhello", False),
    "space before the colon": (OK + b"Content-Length : 5\r\n\r\nhello", False),
    "space in a name": (OK + b"A B: c\r\nContent-Length: 5\r\n\r\nhello", False),
    "folded header": (OK + b"X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello", False),
    "zero in a header": (OK + b"X: a\0b\r\nContent-Length: 5\r\n\r\nhello", False),
    "carriage return in a header": (OK + b"X: a\rb\r\nContent-Length: 5\r\n\r\nhello", False),
    "other letters in a header": (OK + b"X: \xff\xfe\r\nContent-Length: 5\r\n\r\nhello", False),
    "blank line first": (b"\r\n" + LENGTH, False),
}

# Where ours takes what h11 does not, and why that is right.
OURS_ALONE = {
    "blank line first": "Line ends before a head are passed over, as RFC 9112 has servers do; they say nothing.",
}
# Where ours refuses what h11 takes, and why no client misses it.
H11_ALONE = {
    "version 2.0": "HTTP/2 is written otherwise.",
    "version 0.9": "HTTP/0.9 has no head.",
    "two lengths, the same": "One of two programs wrote it: it is not known where the body ends.",
    "list of lengths": "The same, in one line.",
    "length and chunks": "RFC 9112 calls it an attempt to smuggle an answer.",
    "chunks and length": "The same, the other way round.",
    "chunk with a space": "Not in the grammar of chunks.",
    "line feeds": "Not in the grammar of heads; read so by some, and otherwise by others.",
    "folded header": "Deprecated since 2014.",
}
# Where only the connection's further use differs.
KEPT_BY_OURS = {
    "an answer and a line end": "A line end between two answers is passed over, and becomes part of neither.",
}


async def test_both_say_the_same() -> None:
    for name, (said, closes) in CORPUS.items():
        ours, theirs = await verdict_of_ours([said], closes=closes), verdict_of_h11([said], closes=closes)
        if name in OURS_ALONE:
            assert theirs == REFUSED != ours, name
        elif name in H11_ALONE:
            assert ours == REFUSED != theirs, name
        elif name in KEPT_BY_OURS:
            assert (ours.body, ours.status, ours.is_kept) == (theirs.body, theirs.status, not theirs.is_kept), name
        else:
            assert ours == theirs, name


async def test_network_that_cuts_a_response_anywhere_changes_nothing() -> None:
    for name, (said, closes) in CORPUS.items():
        whole = await verdict_of_ours([said], closes=closes)
        for writes in ([said[:at], said[at:]] for at in range(1, len(said))):
            ours = await verdict_of_ours(writes, closes=closes)
            # What comes behind an answer by itself is seen, even if it is a line end.
            assert (ours.body, ours.status) == (whole.body, whole.status), name
            assert ours.is_kept <= whole.is_kept, name


# What the random ones may have that ours is strict or bounded about.
STRICT = {"version", "two lengths", "both", "upgrade", "headers", "interim", "trailers", "extensions"}


@pytest.mark.parametrize("seed", range(8))
async def test_both_say_the_same_to_random_responses(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        frame = random_frame(chance, Body(chance.randbytes(chance.randrange(300)), chance.random() < 0.5, ()), 4096)
        ours = await verdict_of_ours(frame.writes, closes=not frame.is_kept)
        theirs = verdict_of_h11(frame.writes, closes=not frame.is_kept)
        if ours == REFUSED:
            assert theirs == REFUSED or STRICT.intersection(frame.changes), frame
        else:
            assert (ours.body, ours.status) == (theirs.body, theirs.status), frame
            assert ours.is_kept == theirs.is_kept or frame.writes[-1].endswith(b"\r\n\r\n"), frame
