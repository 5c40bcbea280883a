"""The file that a process's output goes to."""

import os
from pathlib import Path
from typing import BinaryIO

LARGEST_BYTES = 10 * 1024 * 1024
TAIL_BYTES = 64 * 1024
LAST_LINES = 5


class ProcessLog:
    def __init__(self, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.log"
        self._start_of_this_run = 0

    def open(self) -> BinaryIO:
        """For one more run of the process. A file that grew large becomes NAME.log.1, in place of the last one."""
        if self.path.exists() and self.path.stat().st_size > LARGEST_BYTES:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        file = self.path.open("a+b")
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                # The last run was killed in the middle of a line.
                file.write(b"\n")
                file.flush()
        self._start_of_this_run = file.tell()
        return file

    def last_words(self) -> str:
        """What the latest run said last, on one line: of a traceback its last line, of structured logs nothing."""
        with self.path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(self._start_of_this_run, end - TAIL_BYTES))
            text = file.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("{")]
        if any(line.startswith("Traceback ") for line in lines):
            lines = lines[-1:]
        return "; ".join(lines[-LAST_LINES:])
