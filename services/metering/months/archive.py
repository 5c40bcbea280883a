"""Writes the entries of a month to a file before they are pruned, and reads such a file.

The file is the text that the closing's hash covers, compressed with gzip.
"""

import gzip
import io
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from services.metering.credit.calendar import CalendarMonth, month_of
from services.metering.credit.ledger.closings import LAST_OF_FIRST, EntriesDigest, EntryRow
from services.metering.credit.store.closings import LEDGER_COLUMNS

# Fast, and within some percent of the smallest.
LEVEL: Final = 6
LINES_AT_ONCE: Final = 1_000
_RECORDED: Final = LEDGER_COLUMNS.index("recorded_at_us")
_LENGTHS: Final = (LEDGER_COLUMNS.index(LAST_OF_FIRST) + 1, len(LEDGER_COLUMNS))


class ArchiveWrong(Exception):
    """The file is not an archive of entries."""


def archive_file(folder: Path, month: CalendarMonth) -> Path:
    return folder / f"ledger-{month}.jsonl.gz"


class ArchiveWriter:
    """A file that appears under its name only when it is complete, on disk and verified."""

    def __init__(self, folder: Path, month: CalendarMonth) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = archive_file(folder, month)
        for left in folder.glob(f".{self._file.name}.*"):
            # Its process was killed: one at a time writes archives.
            left.unlink(missing_ok=True)
        self._part = folder / f".{self._file.name}.{os.getpid()}"
        self._raw: io.BufferedWriter = self._part.open("wb")
        self._part.chmod(0o600)
        # Without a name and a time, so that the same entries are the same bytes.
        self._packed = gzip.GzipFile("", "wb", LEVEL, self._raw, mtime=0)

    def write(self, text: bytes) -> None:
        self._packed.write(text)

    def finish(self) -> Path:
        """Returns the file with all that was written, which has another name until it is published."""
        self._packed.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
        return self._part

    def publish(self) -> None:
        """Gives the file its name, in place of an earlier one."""
        self._part.replace(self._file)
        folder = os.open(self._file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Removes what was not published."""
        self._raw.close()
        self._part.unlink(missing_ok=True)


def read_archive(file: Path) -> tuple[CalendarMonth | None, EntriesDigest]:
    """Returns the month of the entries (None if there are none) and their digest; raises ArchiveWrong."""
    digest, month = EntriesDigest(LEDGER_COLUMNS), None
    for rows in _read_rows(file):
        month = month or month_of(rows[0][_RECORDED])
        digest.add(rows)
    return month, digest


def _read_rows(file: Path) -> Iterator[list[EntryRow]]:
    try:
        with gzip.open(file) as lines:
            while rows := [msgspec.json.decode(line) for line in islice(lines, LINES_AT_ONCE)]:
                if not all(map(_is_entry, rows)):
                    raise ArchiveWrong(f"{file} is not an archive of ledger entries")
                yield rows
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise ArchiveWrong(f"{file} cannot be read: {error}") from error


def _is_entry(row: object) -> bool:
    return isinstance(row, list) and len(row) in _LENGTHS and isinstance(row[_RECORDED], int)
