"""Reads a document in a sandboxed subprocess, within limits of time and memory."""

import asyncio
import contextlib
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.router.grounding.files.isolation import LANDLOCK, SECCOMP, library_folders
from services.router.grounding.files.reader import ReaderOutput
from services.router.grounding.files.sealed_file import SealedFile
from services.router.grounding.records import Document, DocumentKind

WITHIN_S: Final = 90.0
LONGEST_LINE_BYTES: Final = 1024 * 1024

_HERE: Final = Path(__file__).parents[4]
_line: Final = msgspec.json.Decoder(ReaderOutput)

# Receives the number of pages read so far, and the total.
OnPage = Callable[[int, int], None]


class Extraction:
    def __init__(self, pages_most: int, log: Log, within_s: float = WITHIN_S) -> None:
        self._pages_most = pages_most
        self._log = log
        # The isolation mechanisms of the last reader.
        self._holds: list[str] | None = None
        self._within_s = within_s

    async def read(self, document: SealedFile, on_page: OnPage) -> Document:
        try:
            async with asyncio.timeout(self._within_s), started_reader(self._pages_most) as reader:
                handing_over = asyncio.create_task(_hand_over(reader, document))
                try:
                    kind, pages = await self._read_pages(reader, on_page)
                    # Fails if the reader got a part of the document only.
                    await handing_over
                finally:
                    handing_over.cancel()
        except TimeoutError:
            raise _refusal(Sentence("document_reading_slow")) from None
        return Document(kind, document.size_bytes, pages)

    async def _read_pages(self, reader: Process, on_page: OnPage) -> tuple[DocumentKind, list[str]]:
        lines = _lines(reader)
        isolated = await anext(lines, None)
        if isolated is not None:
            self._log_isolation(isolated.holds or [])
        head = await anext(lines, None)
        if head is None:
            raise _refusal(Sentence("document_memory_or_time"))
        pages = [""] * head.pages
        seen = 0
        async for line in lines:
            pages[line.page - 1] += line.text
            if line.page > seen:
                seen = line.page
                on_page(seen, head.pages)
        if seen < head.pages:
            raise _refusal(Sentence("document_memory_or_time"))
        return DocumentKind(head.kind), pages

    def _log_isolation(self, holds: list[str]) -> None:
        """Logs the isolation mechanisms, initially and whenever they change."""
        if holds == self._holds:
            return
        self._holds = holds
        if SECCOMP in holds:
            self._log.info("reader.isolated", reason="+".join(holds))
        else:
            missing = "network" if LANDLOCK in holds else "files and network"
            self._log.warning("reader.not_isolated", reason=f"{missing} open; {'+'.join(holds) or 'nothing'} holds")


def reader_command(pages_most: int) -> list[str]:
    """Builds the command line. The environment is empty, so the import path is an argument; -I isolates Python."""
    program = (
        "import sys; sys.path[:0] = sys.argv[1].split(':'); from services.router.grounding.files.reader import main; "
    )
    return [
        *(sys.executable, "-I", "-B", "-X", "utf8", "-c", program + "main(int(sys.argv[2]))"),
        *(":".join((str(_HERE), *library_folders())), str(pages_most)),
    ]


@contextlib.asynccontextmanager
async def started_reader(pages_most: int) -> AsyncIterator[Process]:
    reader = await asyncio.create_subprocess_exec(
        *reader_command(pages_most),
        # In particular no keys.
        env={},
        cwd="/",
        stdin=PIPE,
        stdout=PIPE,
        # Libraries quote the document in their warnings.
        stderr=DEVNULL,
        limit=LONGEST_LINE_BYTES,
    )
    try:
        yield reader
    finally:
        with contextlib.suppress(ProcessLookupError):
            reader.kill()
        await reader.wait()


async def _hand_over(reader: Process, document: SealedFile) -> None:
    if reader.stdin is None:
        return
    # A reader that rejects the document closes its stdin early.
    with contextlib.closing(reader.stdin), contextlib.suppress(ConnectionError):
        async for piece in document.pieces():
            reader.stdin.write(piece)
            await reader.stdin.drain()


async def _lines(reader: Process) -> AsyncIterator[ReaderOutput]:
    if reader.stdout is None:
        return
    while data := await reader.stdout.readline():
        line = _line.decode(data)
        if line.refused:
            raise _refusal(Sentence(line.refused, **line.figures))
        yield line


def _refusal(why: Sentence) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, why, param="document")
