import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from cli.backups.sqlite_copies import CopyDamaged, copy_in_use


def test_copy_has_one_snapshot_of_a_database_that_is_being_written(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "live.db", isolation_level=None)) as live:
        live.execute("PRAGMA journal_mode=WAL")
        live.execute("CREATE TABLE numbers (number INTEGER)")
        live.execute("INSERT INTO numbers VALUES (1)")
        live.execute("BEGIN IMMEDIATE")
        live.execute("INSERT INTO numbers VALUES (2)")
        copy_in_use(tmp_path / "live.db", tmp_path / "copy.db")
        live.execute("COMMIT")
    with closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
        assert copy.execute("SELECT number FROM numbers").fetchall() == [(1,)]
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600


def test_damaged_or_missing_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "damaged.db").write_bytes(b"no database" * 1000)
    for name in ("damaged.db", "missing.db"):
        with pytest.raises(CopyDamaged, match=name):
            copy_in_use(tmp_path / name, tmp_path / f"copy-of-{name}")
    assert not (tmp_path / "missing.db").exists()
