"""The file of a form, in whatever pieces it arrives."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.requests import Request

from console.web.uploads import PIECE_BYTES, Upload
from services.chassis.errors import LegatoError, Reason

BOUNDARY = b"----boundary"
CONTENT = b"\r\n--\r\n------bound\r\n\x00\xff--" + bytes(range(256))
OTHER = b'Content-Disposition: form-data; name="comment"\r\n\r\nfilename="no.txt"\r\n'
FILE = b'Content-Disposition: form-data; name="document"; filename="a \xc3\xa9.txt"\r\nContent-Type: text/plain\r\n\r\n'


def form(*parts: bytes) -> bytes:
    return b"".join(b"--" + BOUNDARY + b"\r\n" + part for part in parts) + b"--" + BOUNDARY + b"--\r\n"


def request_with(body: bytes, at_once: int) -> Request:
    chunks: Iterator[bytes] = (body[at : at + at_once] for at in range(0, len(body), at_once))

    async def receive() -> dict[str, Any]:
        chunk = next(chunks, None)
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    headers = [
        (b"content-type", b"multipart/form-data; boundary=" + BOUNDARY),
        (b"content-length", str(len(body)).encode()),
    ]
    return Request({"type": "http", "method": "POST", "headers": headers}, receive)


async def read(body: bytes, at_once: int = 1000) -> tuple[str, int, list[bytes]]:
    upload = Upload(request_with(body, at_once))
    await upload.open()
    return upload.name, upload.size_bytes, [piece async for piece in upload.pieces()]


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 64, 100_000])
async def test_a_file_arrives_whole_in_any_chunks(at_once: int) -> None:
    name, size_bytes, pieces = await read(form(OTHER, FILE + CONTENT + b"\r\n"), at_once)
    assert name == "a é.txt"
    assert b"".join(pieces) == CONTENT
    assert size_bytes <= len(CONTENT)


async def test_the_length_of_the_form_tells_the_size_of_the_file() -> None:
    assert (await read(form(OTHER, FILE + b"Hello\r\n")))[1] == 5
    assert (await read(form(FILE + CONTENT + b"\r\n")))[1] == len(CONTENT)


async def test_what_follows_the_file_is_passed_over() -> None:
    name, _, pieces = await read(form(FILE + CONTENT + b"\r\n", FILE + b"another\r\n", OTHER))
    assert (name, b"".join(pieces)) == ("a é.txt", CONTENT)


async def test_an_empty_file_has_no_pieces() -> None:
    assert await read(form(FILE + b"\r\n")) == ("a é.txt", 0, [])


async def test_pieces_are_bounded_and_never_gathered() -> None:
    content = b"x" * (5 * PIECE_BYTES + 17)
    upload = Upload(request_with(form(FILE + content + b"\r\n"), 40_000))
    await upload.open()
    sizes = []
    async for piece in upload.pieces():
        sizes.append(len(piece))
        assert len(upload._content) < 2 * PIECE_BYTES
    assert sizes == [PIECE_BYTES] * 5 + [17]


@pytest.mark.parametrize(
    "body",
    [form(OTHER), form(OTHER)[:-10], form(FILE + CONTENT + b"\r\n")[:-6], b"\x00" * 100, b"", form(OTHER * 3000, FILE)],
    ids=["no-file", "cut-before", "cut-behind", "no-form", "nothing", "endless-fields"],
)
async def test_a_form_that_is_incomplete_is_refused(body: bytes) -> None:
    with pytest.raises(LegatoError) as refusal:
        await read(body)
    assert refusal.value.reason is Reason.REQUEST_INVALID
