"""The backups in one folder or bucket, each below its name: the time when it began."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cli.backups import manifest
from cli.backups.manifest import BackupUnusable, Manifest, decode_manifest
from services.chassis.object_store import ObjectStore

_NAME: Final = re.compile("[0-9]{8}T[0-9]{6}Z")
_TIME: Final = "%Y%m%dT%H%M%SZ"
# A backup without a manifest may still be under way.
UNFINISHED_KEPT: Final = timedelta(days=1)


class Catalog:
    def __init__(self, store: ObjectStore, where: str) -> None:
        self._store = store
        self._where = where

    def names(self, *, complete: bool = True) -> list[str]:
        """Returns the names of complete backups, or of the others, the oldest first."""
        objects = [name.partition("/") for name in self._store.list()]
        found = {name for name, _, _ in objects if _NAME.fullmatch(name)}
        with_manifest = {name for name, _, file in objects if file == manifest.FILE}
        return sorted(found & with_manifest if complete else found - with_manifest)

    def find(self, name: str = "") -> str:
        """Returns the name of a complete backup: the newest, unless one is named."""
        names = self.names()
        if not name and names:
            return names[-1]
        if name not in names:
            if not name:
                raise BackupUnusable(f"{self._where} has no backup: name what was named to `legato backup`")
            state = "is incomplete: it has no manifest" if name in self.names(complete=False) else "does not exist"
            raise BackupUnusable(f"the backup {name} in {self._where} {state}")
        return name

    def read_manifest(self, name: str) -> Manifest:
        return decode_manifest(self._store.get(f"{name}/{manifest.FILE}"), name)

    def put(self, name: str, file: Path) -> None:
        self._store.put(f"{name}/{file.name}", file)

    def put_manifest(self, name: str, complete: Manifest) -> None:
        self._store.put(f"{name}/{manifest.FILE}", complete.encode())

    def save(self, name: str, file: str, path: Path) -> None:
        self._store.save(f"{name}/{file}", path)

    def prune(self, keep: int, now: datetime) -> list[str]:
        """Deletes all complete backups but the newest, and those that were given up; returns their names."""
        given_up = name_at(now - UNFINISHED_KEPT)
        removed = [*self.names()[:-keep], *(name for name in self.names(complete=False) if name < given_up)]
        for name in removed:
            files = self._store.list(name)
            # Without the manifest first: what is left of an interrupted deletion is no backup.
            for file in sorted(files, key=lambda path: not path.endswith(f"/{manifest.FILE}")):
                self._store.delete(file)
        return removed


def name_at(time: datetime) -> str:
    return time.astimezone(UTC).strftime(_TIME)
