"""The log file of a process's output."""

import os
from pathlib import Path
from typing import BinaryIO, Final

LARGEST_BYTES: Final = 10 * 1024 * 1024
# NAME.log.1, the newest, to NAME.log.3.
KEPT_FILES: Final = 3
COPIED_BYTES: Final = 1024 * 1024
TAIL_BYTES: Final = 64 * 1024
LAST_LINES: Final = 5


class ProcessLog:
    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.log"
        self._start_of_this_run = 0

    def open(self) -> BinaryIO:
        """Opens the file for a run of the process, in append mode, so that it may be truncated meanwhile."""
        if self._is_large():
            self._make_room()
            self.path.replace(self._kept(1))
        file = self.path.open("a+b")
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                # The last run was killed in the middle of a line.
                file.write(b"\n")
                file.flush()
        self._start_of_this_run = file.tell()
        return file

    def rotate(self) -> bool:
        """Copies a file that grew large to NAME.log.1 and empties it, while its process goes on writing to it.

        The process keeps the file open, and so does any library that writes to its stderr, so a new file would stay
        empty. What is written between the last read and the truncation, some microseconds, is lost.
        """
        if not self._is_large():
            return False
        draft = self.path.with_name(f"{self.path.name}.new")
        try:
            self._move_to(draft)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        self._make_room()
        draft.replace(self._kept(1))
        self._start_of_this_run = 0
        return True

    def _move_to(self, draft: Path) -> None:
        draft.touch(mode=0o600)
        with self.path.open("r+b", buffering=0) as file, draft.open("wb") as copy:
            while data := file.read(COPIED_BYTES):
                copy.write(data)
                copy.flush()
            file.truncate(0)

    def last_words(self) -> str:
        """Returns the latest run's last lines as one: of a traceback the last line, of structured logs nothing."""
        with self.path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(self._start_of_this_run, end - TAIL_BYTES))
            text = file.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("{")]
        if any(line.startswith("Traceback ") for line in lines):
            lines = lines[-1:]
        return "; ".join(lines[-LAST_LINES:])

    def _is_large(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > LARGEST_BYTES

    def _make_room(self) -> None:
        """Shifts the old files by one."""
        for number in range(KEPT_FILES - 1, 0, -1):
            if self._kept(number).exists():
                self._kept(number).replace(self._kept(number + 1))

    def _kept(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")
