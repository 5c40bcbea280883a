"""Keeps a document on the disk, encrypted, between its arrival and its reading."""

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, Self

from services.chassis.sealing import TAG_BYTES, SingleUseKey

BLOCK_BYTES: Final = 64 * 1024


class SealedFile:
    """A file without a name, whose key only this object has: it cannot be read once the process has ended, and its
    space is free then. Blocks are numbered, so that none can be exchanged for another."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        # A cancelled task leaves its thread behind, which must not meet a descriptor that was closed and given anew.
        self._lock = threading.Lock()
        self._key = SingleUseKey()
        self._pending = bytearray()
        self._blocks = 0
        self.size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._file.close()

    async def append(self, piece: bytes) -> None:
        self.size_bytes += len(piece)
        self._pending += piece
        while len(self._pending) >= BLOCK_BYTES:
            await self._write_block()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the content from its beginning; nothing can be appended any more."""
        if self._pending:
            await self._write_block()
        for number in range(self._blocks):
            yield await asyncio.to_thread(self._read, number)

    async def _write_block(self) -> None:
        block = bytes(self._pending[:BLOCK_BYTES])
        del self._pending[:BLOCK_BYTES]
        number, self._blocks = self._blocks, self._blocks + 1
        await asyncio.to_thread(self._write, number, block)

    def _write(self, number: int, block: bytes) -> None:
        sealed = memoryview(self._key.seal(block, number))
        with self._lock:
            # The system may take less than it is given.
            while sealed and not self._file.closed:
                sealed = sealed[self._file.write(sealed) :]

    def _read(self, number: int) -> bytes:
        with self._lock:
            self._file.seek(number * (BLOCK_BYTES + TAG_BYTES))
            sealed = self._file.read(BLOCK_BYTES + TAG_BYTES)
        return self._key.open(sealed, number)
