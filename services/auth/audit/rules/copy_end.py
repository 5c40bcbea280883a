"""Remembers in the data folder how far this machine has copied the audit log.

A chain does not tell that its last segments are gone, and neither does a database from a backup. Where the folder
outlives the database, this does.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "audit-copy-end.json"


class _End(msgspec.Struct, frozen=True):
    event_no: int


class CopyEnd:
    def __init__(self, data: Path) -> None:
        self.path = data / FILE

    def read(self) -> int:
        """Returns the last event of the copy; 0: it is not known."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_End).event_no
        except (OSError, msgspec.MsgspecError):
            return 0

    def record(self, event_no: int) -> None:
        """Raises an OSError where the folder cannot be written."""
        draft = self.path.with_suffix(f".{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_bytes(msgspec.json.encode(_End(event_no)))
        draft.replace(self.path)
