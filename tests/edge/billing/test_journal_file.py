"""Whose a journal's file is, and what becomes of one that cannot be read."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edge.billing import journal_file as module
from edge.billing.journal_file import HEADER_BYTES, SLOT_BYTES, JournalFile, JournalSetAside, JournalTaken

SLOTS = 4
WHOLE_BYTES = HEADER_BYTES + SLOTS * SLOT_BYTES
# As if a slot had been written.
WRITTEN = b"counts of another chat"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "edge-1.journal"


def write_journal(path: Path) -> None:
    file = JournalFile(path, SLOTS)
    os.pwrite(file.number, WRITTEN, HEADER_BYTES)
    file.close()


def slots_of(path: Path) -> bytes:
    """Slots as the next process finds them."""
    file = JournalFile(path, SLOTS)
    found = os.pread(file.number, WHOLE_BYTES, HEADER_BYTES)
    file.close()
    return found.rstrip(b"\0")


def test_what_one_process_wrote_is_there_for_the_next(path: Path) -> None:
    write_journal(path)
    assert slots_of(path) == WRITTEN


def test_file_of_a_living_process_is_taken(path: Path) -> None:
    file = JournalFile(path, SLOTS)
    with pytest.raises(JournalTaken):
        JournalFile(path, SLOTS)
    file.close()
    JournalFile(path, SLOTS).close()


def test_file_of_another_boot_is_lost(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages on the disk may be older after a reboot than what was told to metering."""
    write_journal(path)
    boot_id = tmp_path / "boot_id"
    boot_id.write_text("00000000-0000-0000-0000-000000000000\n")
    monkeypatch.setattr(module, "_BOOT_ID", boot_id)
    file = JournalFile(path, SLOTS)
    assert file.is_of_another_boot
    assert os.pread(file.number, WHOLE_BYTES, HEADER_BYTES).strip(b"\0") == b""
    file.close()
    file = JournalFile(path, SLOTS)
    assert not file.is_of_another_boot
    file.close()


@pytest.mark.parametrize("content", [b"", bytes(100), bytes(HEADER_BYTES), bytes(WHOLE_BYTES)])
def test_file_in_which_nothing_was_written_yet_is_new(path: Path, content: bytes) -> None:
    """Also where a process died while it made one."""
    path.write_bytes(content)
    assert slots_of(path) == b""
    assert path.stat().st_size == WHOLE_BYTES


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda whole: b"LEGATO2\n" + whole[8:], "version"),
        (lambda whole: bytes(8) + whole[8:], "damaged"),
        (lambda whole: b"no journal at all " * 100, "damaged"),
        (lambda whole: whole[:20], "damaged"),
        (lambda whole: whole[:-1], "damaged"),
        (lambda whole: whole + b"\0", "damaged"),
    ],
)
def test_file_that_cannot_be_read_is_set_aside_as_it_is(
    path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    write_journal(path)
    content = change(path.read_bytes())
    path.write_bytes(content)
    with pytest.raises(JournalSetAside) as aside:
        JournalFile(path, SLOTS)
    assert aside.value.reason == reason
    assert path.with_name(aside.value.name).read_bytes() == content
    assert slots_of(path) == b""


def test_no_file_that_was_set_aside_takes_the_place_of_another(path: Path) -> None:
    for content in (b"one", b"two"):
        path.write_bytes(content)
        with pytest.raises(JournalSetAside):
            JournalFile(path, SLOTS)
    others = sorted(other for other in path.parent.iterdir() if other != path)
    assert [other.read_bytes() for other in others] == [b"one", b"two"]
    # No process has them any more.
    assert not [other for other in others if other.match("*.journal")]


def test_file_that_was_set_aside_while_we_came_is_not_taken_for_the_one_in_its_place(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_journal(path)
    flock = fcntl.flock

    def lock_late(file: int, how: int) -> None:
        path.rename(path.with_name("aside"))
        path.touch()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with pytest.raises(JournalTaken):
        JournalFile(path, SLOTS)


def test_file_is_private(path: Path) -> None:
    JournalFile(path, SLOTS).close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_whole_file_is_on_the_disk_before_it_is_used(path: Path) -> None:
    JournalFile(path, SLOTS).close()
    assert path.stat().st_blocks * 512 >= WHOLE_BYTES
