"""Restores a backup to SQLite files: prepared in a folder of their own, and put in place by renaming them.

A file in that folder says when all are ready. From then on a restore that was interrupted is only completed, and
`legato up` does not start before: some files may be new and others old.
"""

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from cli.backups.catalog import Catalog, name_at
from cli.backups.manifest import BackupUnusable, Manifest, require_same
from cli.backups.stores import SERVICES
from cli.supervision.data_folder import (
    RESTORE_READY,
    AlreadyLocked,
    lock_for_processes,
    lock_for_supervisor,
    prepare,
    write_private,
)
from services.chassis.process import failpoints

LOCK_TIMEOUT_S: Final = 1.0


class ReadyFiles(msgspec.Struct, frozen=True):
    """Restored files that are ready to be put in place."""

    backup: str
    # The folder for those that they replace.
    aside: str
    violations: list[str]


class SqliteRestore:
    def __init__(self, catalog: Catalog, name: str, manifest: Manifest, data: Path) -> None:
        self._catalog = catalog
        self._name = name
        self._manifest = manifest
        self._data = data
        self._ready = data / RESTORE_READY
        self._folder = self._ready.parent

    def run(self, make_ready: Callable[[Path], list[str]], now: datetime, *, replace: bool) -> tuple[str, list[str]]:
        """Returns where the files that were there are now, or "", and the violations that `make_ready` has found."""
        prepare(self._data)
        with self._locked():
            ready = self._read_ready()
            if ready is None:
                if not replace and (found := [path.name for path in self._present()]):
                    raise BackupUnusable(
                        f"{self._data} has {', '.join(found)} already: name another folder with --data, or replace "
                        "them with --replace, which keeps them aside"
                    )
                ready = self._prepare(make_ready, now)
            self._put_in_place(self._data / ready.aside)
        return (str(self._data / ready.aside) if (self._data / ready.aside).exists() else ""), ready.violations

    def _read_ready(self) -> ReadyFiles | None:
        """Returns what an interrupted restore has left, if it had come so far."""
        if not self._ready.exists():
            return None
        ready = msgspec.json.decode(self._ready.read_bytes(), type=ReadyFiles)
        if ready.backup != self._name:
            raise BackupUnusable(
                f"the restore of {ready.backup} was interrupted: complete it with --backup {ready.backup}"
            )
        return ready

    def _prepare(self, make_ready: Callable[[Path], list[str]], now: datetime) -> ReadyFiles:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        for file in self._manifest.files:
            self._catalog.save(self._name, file.name, self._folder / file.name)
            require_same(self._folder / file.name, file)
        failpoints.hit("restore.step")
        ready = ReadyFiles(self._name, f"replaced-{name_at(now)}-{secrets.token_hex(2)}", make_ready(self._folder))
        failpoints.hit("restore.step")
        write_private(self._ready, msgspec.json.encode(ready).decode())
        return ready

    def _put_in_place(self, aside: Path) -> None:
        for service in SERVICES:
            restored = self._folder / f"{service}.db"
            # Once it has moved, what is in its place is the restored file.
            if restored.exists() or f"{service}.db" not in {file.name for file in self._manifest.files}:
                for path in self._files_of(service):
                    aside.mkdir(mode=0o700, exist_ok=True)
                    failpoints.hit("restore.step")
                    path.rename(aside / path.name)
            failpoints.hit("restore.step")
            if restored.exists():
                restored.rename(self._data / restored.name)
        _sync(self._data)
        failpoints.hit("restore.step")
        self._ready.unlink()
        shutil.rmtree(self._folder)

    def _present(self) -> list[Path]:
        return [path for service in SERVICES for path in self._files_of(service)]

    def _files_of(self, service: str) -> list[Path]:
        return sorted(path for path in self._data.glob(f"{service}.db*") if path.is_file())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        locks: list[int] = []
        try:
            locks.append(lock_for_supervisor(self._data))
            locks.append(lock_for_processes(self._data, LOCK_TIMEOUT_S))
            yield
        except AlreadyLocked:
            raise BackupUnusable(f"the service in {self._data} is running: stop it first") from None
        finally:
            for lock in locks:
                os.close(lock)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
