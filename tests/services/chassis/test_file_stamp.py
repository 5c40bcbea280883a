"""Files that were replaced or written to."""

import os
from pathlib import Path

from services.chassis.file_stamp import stamp_of


def test_file_of_the_same_size_and_time_has_another_stamp_once_it_is_replaced(tmp_path: Path) -> None:
    path, other = tmp_path / "key", tmp_path / "other"
    path.write_text("key-1")
    other.write_text("key-2")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    before = stamp_of(path)
    assert stamp_of(path) == before
    other.rename(path)
    assert stamp_of(path) != before


def test_file_that_is_gone_has_no_stamp(tmp_path: Path) -> None:
    assert stamp_of(tmp_path / "key") is None
