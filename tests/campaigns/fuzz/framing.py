"""HTTP around an answer, as broken or hostile servers write it."""

import random
from dataclasses import dataclass
from typing import Final

from tests.campaigns.fuzz.answers import Body

Random = random.Random

_REASONS: Final = {200: b"OK", 400: b"Bad Request", 413: b"Too Large", 422: b"Unprocessable", 500: b"Error"}
SECOND_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond"


@dataclass(frozen=True)
class Framed:
    # As they are written to the socket.
    writes: list[bytes]
    # Whether the server waits for the next request on the same connection.
    is_kept: bool
    changes: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.writes))


def random_frame(chance: Random, body: Body, largest_bytes: int) -> Framed:
    changes = list(body.changes)
    status = chance.choices((200, 400, 413, 422, 500, 204, 301), (90, 3, 2, 1, 2, 1, 1))[0]
    content_type = b"text/event-stream" if body.is_stream else b"application/json"
    if chance.random() < 0.05:
        content_type = chance.choice((b"text/html", b"", b"application/json", b"text/event-stream"))
        changes.append("odd type")
    head = [b"HTTP/1.1 %d %b" % (status, _REASONS.get(status, b"")), b"Content-Type: " + content_type]
    kind = chance.choice(("length", "chunked", "chunked", "until the end"))
    content = body.content
    before, is_kept = _change_head(chance, head, len(content), largest_bytes, changes)
    if kind == "length":
        wrong = chance.choice((0, 0, 0, 0, 1, -1, 10**15))
        is_kept = is_kept and wrong <= 0
        head.append(b"Content-Length: %d" % max(0, len(content) + wrong))
    elif kind == "chunked":
        head.append(b"Transfer-Encoding: chunked")
        content = _chunked(chance, content, largest_bytes, changes)
    else:
        is_kept = False
    after = b""
    if is_kept and chance.random() < 0.15:
        after = chance.choice((SECOND_ANSWER, SECOND_ANSWER * 50, b"garbage", b"\r\n", b"\x00", SECOND_ANSWER[:20]))
        changes.append("more behind it")
    said = before + b"\r\n".join(head) + b"\r\n\r\n" + content + after
    if chance.random() < 0.1:
        said, is_kept = said[: chance.randrange(len(said) + 1)], False
        changes.append("cut")
    return Framed(_split(chance, said), is_kept, tuple(changes))


def _change_head(
    chance: Random, head: list[bytes], content_bytes: int, largest_bytes: int, changes: list[str]
) -> tuple[bytes, bool]:
    """Returns what precedes it, and if the connection can be kept."""
    change = chance.choice(("", "", "", "", "headers", "interim", "version", "two lengths", "both", "upgrade"))
    if change:
        changes.append(change)
    match change:
        case "headers":
            head += [b"X%d: %b" % (number, b"x" * _amount(chance, 200)) for number in range(_amount(chance, 2000))]
        case "interim":
            return b"HTTP/1.1 100 Continue\r\n\r\n" * _amount(chance, largest_bytes // 25), True
        case "version":
            head[0] = head[0].replace(b"1.1", chance.choice((b"2.0", b"0.9", b"1.0", b"9.9")))
        case "two lengths":
            head += [b"Content-Length: %d" % content_bytes, b"Content-Length: 1"]
        case "both":
            head += [b"Content-Length: %d" % content_bytes, b"Transfer-Encoding: chunked"]
        case "upgrade":
            head[0] = b"HTTP/1.1 101 Switching Protocols"
            head.append(b"Upgrade: x\r\nConnection: upgrade")
    return b"", change in ("", "headers")


def _chunked(chance: Random, content: bytes, largest_bytes: int, changes: list[str]) -> bytes:
    size = chance.choice((1, 3, 100, 4096, 65536, len(content) + 1))
    if size < 100:
        content = content[: largest_bytes // 4]
        changes.append("tiny chunks")
    extension = b""
    if chance.random() < 0.1:
        extension = b";" + b"x" * _amount(chance, 4096)
        content = content[: largest_bytes // 8 * size // (len(extension) + size) + 1]
        changes.append("extensions")
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    written = b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    trailers = b""
    if chance.random() < 0.1:
        trailers = (b"X: " + b"x" * _amount(chance, 1000) + b"\r\n") * _amount(chance, largest_bytes // 500)
        changes.append("trailers")
    return written + b"0\r\n" + trailers + b"\r\n"


def _split(chance: Random, said: bytes) -> list[bytes]:
    """However the network would cut it."""
    if chance.random() < 0.5 or not said:
        return [said]
    if len(said) < 2000 and chance.random() < 0.3:
        return [said[at : at + 1] for at in range(len(said))]
    cuts = sorted(chance.randrange(len(said)) for _ in range(chance.randint(1, 8)))
    return [said[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(said)], strict=True) if end > begin]


def _amount(chance: Random, most: int) -> int:
    return min(most, int(2 ** chance.uniform(0, max(1, most).bit_length())))
