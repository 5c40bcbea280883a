"""Small regular files are read, and nothing else is opened."""

import os
from pathlib import Path

import pytest

from services.chassis.small_file import MOST_BYTES, read_small_file


def test_small_file_is_read_through_links(tmp_path: Path) -> None:
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "key").write_bytes("clé\r\n".encode())
    (tmp_path / "key").symlink_to("..data/key")
    assert read_small_file(tmp_path / "key") == "clé\n"
    (tmp_path / "key").write_bytes(b"x" * MOST_BYTES)
    assert len(read_small_file(tmp_path / "key")) == MOST_BYTES


def test_pipes_devices_folders_and_large_files_are_refused_at_once(tmp_path: Path) -> None:
    # A pipe that nobody writes into would be waited for.
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (MOST_BYTES + 1))
    for path, why in (
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "large", "larger than 1 MiB"),
        (tmp_path / "nowhere", "No such file"),
    ):
        with pytest.raises(OSError, match=why) as refused:
            read_small_file(path)
        assert refused.value.strerror
