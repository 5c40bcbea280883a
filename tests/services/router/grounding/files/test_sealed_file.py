"""Documents on the disk before they are read."""

from pathlib import Path

import pytest

from services.chassis.sealing import TAG_BYTES, CannotOpen
from services.router.grounding.files.sealed_file import BLOCK_BYTES, SealedFile

DOCUMENT = b"A confidential line of the document.\n" * 10_000


async def content_of(file: SealedFile) -> bytes:
    return b"".join([piece async for piece in file.pieces()])


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def stored(file: SealedFile) -> Path:
    """The file has no name; the process has it open."""
    return Path(f"/proc/self/fd/{file._file.fileno()}")


@pytest.mark.parametrize("piece_bytes", [1_000, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 1])
async def test_document_comes_back_as_it_was_in_whatever_pieces_it_came(tmp_path: Path, piece_bytes: int) -> None:
    with SealedFile(tmp_path / "not there yet") as file:
        for at in range(0, len(DOCUMENT), piece_bytes):
            await file.append(DOCUMENT[at : at + piece_bytes])
        assert file.size_bytes == len(DOCUMENT)
        assert await content_of(file) == DOCUMENT
        assert await content_of(file) == DOCUMENT


async def test_empty_document_has_no_pieces(tmp_path: Path) -> None:
    with SealedFile(tmp_path) as file:
        await file.append(b"")
        assert await content_of(file) == b""


async def test_disk_has_neither_its_words_nor_a_file_that_outlives_the_process(tmp_path: Path) -> None:
    with SealedFile(tmp_path) as file:
        await file.append(DOCUMENT)
        await content_of(file)
        on_disk = stored(file).read_bytes()
        assert len(on_disk) >= len(DOCUMENT)
        assert b"confidential" not in on_disk
        assert files_in(tmp_path) == []


async def test_blocks_that_were_exchanged_are_not_read(tmp_path: Path) -> None:
    with SealedFile(tmp_path) as file:
        await file.append(DOCUMENT)
        await content_of(file)
        block_bytes = BLOCK_BYTES + TAG_BYTES
        with stored(file).open("r+b") as opened:
            first, second = opened.read(block_bytes), opened.read(block_bytes)
            opened.seek(0)
            opened.write(second + first)
        with pytest.raises(CannotOpen):
            await content_of(file)
