"""Copies of a SQLite file that a service has open: each test begins with the rows that another was given."""

import sqlite3
from contextlib import closing
from pathlib import Path


def copy_of(file: Path) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", check_same_thread=False)
    with closing(sqlite3.connect(file)) as source:
        source.backup(copy)
    return copy


def restore(file: Path, copy: sqlite3.Connection) -> None:
    with closing(sqlite3.connect(file, timeout=60)) as live:
        live.execute("PRAGMA synchronous = OFF")
        copy.backup(live)
