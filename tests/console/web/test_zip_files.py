"""ZIP files that are sent while they are written: in parts, whole, and cut off where a service fails."""

import io
import os
import zipfile
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from console.web.csv_files import CHUNK_BYTES, FileCutOff
from console.web.zip_files import Files, zip_response
from services.chassis.errors import unavailable
from tests.console.clock import NOW
from tests.console.harness import ConsoleHarness

PIECES: Final = 40
PIECE_BYTES: Final = 32 * 1024


class Visitor:
    """The part of a visit that a file needs."""

    now = NOW

    def __init__(self, console: Any) -> None:
        self.console = console


async def random_pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield os.urandom(PIECE_BYTES)


async def two_files() -> Files:
    yield "large.bin", random_pieces(PIECES)
    yield "empty.csv", random_pieces(0)


async def broken_file() -> Files:
    yield "large.bin", random_pieces(3)
    raise unavailable("Metering")


async def gather(response: AsyncIterator[bytes], parts: list[bytes]) -> None:
    async for part in response:
        parts.append(part)  # noqa: PERF401


async def test_a_file_is_sent_in_parts_while_it_is_written(console: ConsoleHarness) -> None:
    response: Any = zip_response(Visitor(console.console), "all.zip", two_files())  # type: ignore[arg-type]
    parts = [part async for part in response.body_iterator]
    # No more than a part of it is in memory, whatever cannot be compressed.
    assert max(map(len, parts)) < CHUNK_BYTES + 2 * PIECE_BYTES
    archive = zipfile.ZipFile(io.BytesIO(b"".join(parts)))
    assert archive.testzip() is None
    sizes = {each.filename: each.file_size for each in archive.infolist()}
    assert sizes == {"large.bin": PIECES * PIECE_BYTES, "empty.csv": 0}


async def test_a_file_that_cannot_be_finished_has_no_end(console: ConsoleHarness) -> None:
    response: Any = zip_response(Visitor(console.console), "all.zip", broken_file())  # type: ignore[arg-type]
    parts: list[bytes] = []
    with pytest.raises(FileCutOff):
        await gather(response.body_iterator, parts)
    assert parts
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(b"".join(parts)))
