"""Copies SQLite databases that are in use."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

BUSY_TIMEOUT_S: Final = 10.0


class CopyDamaged(Exception):
    """The copy of a database is not one: the file, or its disk, is damaged."""


def copy_in_use(source: Path, copy: Path) -> None:
    """Copies one snapshot of a database to a new file, which only its owner may read, and verifies it. `VACUUM INTO`
    reads once, undisturbed by writes; SQLite's backup API begins again after each write of another process."""
    # SQLite writes to an empty file that exists, and leaves its permissions alone.
    os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with closing(
            sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S)
        ) as live:
            live.execute("VACUUM INTO ?", [str(copy)])
        with closing(sqlite3.connect(copy)) as copied:
            [(verdict,), *_] = copied.execute("PRAGMA integrity_check").fetchall()
    except sqlite3.DatabaseError as error:
        raise CopyDamaged(f"{source} cannot be copied: {error}") from None
    if verdict != "ok":
        raise CopyDamaged(f"the copy of {source} is damaged: {verdict}")
