"""The file of a journal: locks it, and checks whether it can be relied on.

What a process left behind is worth money, so a file that cannot be read is never overwritten: it is renamed, and the
caller gets an exception. Only a file in which nothing was ever written is new.
"""

import fcntl
import os
import struct
from itertools import count
from pathlib import Path
from typing import Final

HEADER_BYTES: Final = 4096
SLOT_BYTES: Final = 256

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
# The digit is the version: this code cannot read slots of another one.
_MAGIC: Final = b"LEGATO1\n"
_ANY_VERSION: Final = b"LEGATO"
_HEADER: Final = struct.Struct("<8sI36s")


class JournalTaken(Exception):
    """Another process owns this file."""


class JournalSetAside(Exception):
    """The file could not be read, and was renamed: there is room for a new one."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name)
        self.name = name
        # "version": another version of Legato has written it. "damaged": its content is unknown.
        self.reason = reason


class JournalFile:
    """A locked file, owned by one process until that ends."""

    def __init__(self, path: Path, wanted_slots: int) -> None:
        """Locks and checks the file; raises JournalTaken or JournalSetAside."""
        self._path = path
        # True if the machine has rebooted since: the file was unreliable and has been emptied.
        self.is_of_another_boot = False
        self.number = _lock(path)
        try:
            self.slots = self._prepare(wanted_slots)
        except BaseException:
            self.close()
            raise

    @property
    def size_bytes(self) -> int:
        return HEADER_BYTES + self.slots * SLOT_BYTES

    def close(self) -> None:
        os.close(self.number)

    def _prepare(self, wanted_slots: int) -> int:
        """Returns the number of slots. Empties a file that is new or of another boot."""
        boot_id = _BOOT_ID.read_bytes().strip()
        magic, slots, booted = _HEADER.unpack(os.pread(self.number, _HEADER.size, 0).ljust(_HEADER.size))
        if magic == _MAGIC and os.fstat(self.number).st_size == HEADER_BYTES + slots * SLOT_BYTES:
            if booted == boot_id:
                return int(slots)
            self.is_of_another_boot = True
        elif self._path.read_bytes().strip(b"\0"):
            is_another_version = magic != _MAGIC and magic.startswith(_ANY_VERSION)
            raise self._set_aside("version" if is_another_version else "damaged")
        os.ftruncate(self.number, 0)
        # Allocates all pages now: touching an unallocated page on a full disk would kill the process.
        os.posix_fallocate(self.number, 0, HEADER_BYTES + wanted_slots * SLOT_BYTES)
        os.pwrite(self.number, _HEADER.pack(_MAGIC, wanted_slots, boot_id), 0)
        return wanted_slots

    def _set_aside(self, reason: str) -> JournalSetAside:
        asides = (self._path.with_name(f"{self._path.name}.lost-{number}") for number in count(1))
        aside = next(path for path in asides if not path.exists())
        # A process that has opened it meanwhile notices that the path is now another file.
        self._path.rename(aside)
        return JournalSetAside(aside.name, reason)


def _lock(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.stat().st_ino == os.fstat(file).st_ino:
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(file)
    raise JournalTaken
