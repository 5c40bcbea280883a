"""Makes a backup of all stores while the service runs."""

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

from cli.backups.catalog import UNFINISHED_KEPT, Catalog, name_at
from cli.backups.manifest import BackedUpSchema, BackupUnusable, BookTotals, Manifest, describe_file
from cli.backups.secret_fingerprints import fingerprints, given_secrets, recorded_peppers
from cli.backups.settings import BackupSettings
from cli.backups.stores import DUMP, NEEDED, SERVICES, file_names, opened, read_schema, read_totals

if TYPE_CHECKING:
    from services.chassis.database.database import Database
    from services.metering.store import Connection

_SCRATCH: Final = ".legato-backup-"


class _Contents(TypedDict):
    """The stores, as a manifest describes them."""

    schemas: dict[str, BackedUpSchema]
    totals: BookTotals
    secrets: dict[str, str]


class BackupMaker:
    def __init__(self, catalog: Catalog, settings: BackupSettings, data: Path, scratch: Path | None) -> None:
        """`scratch` has room for the files until they are in the catalog; None: the system's temporary folder."""
        self._catalog = catalog
        self._settings = settings
        self._data = data
        self._scratch = scratch

    def make(self, now: datetime) -> tuple[str, Manifest]:
        """Returns the name of a complete backup, and its manifest."""
        name = name_at(now)
        self._remove_leftovers(now)
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=self._scratch) as folder:
            make_files = self._dump_postgresql if self._settings.database_url else self._copy_sqlite
            files, described = make_files(Path(folder))
            manifest = Manifest(
                legato=version("legato"),
                began_at=now,
                store="postgresql" if self._settings.database_url else "sqlite",
                files=[describe_file(file) for file in files],
                **described,
            )
            for file in files:
                self._catalog.put(name, file)
        self._catalog.put_manifest(name, manifest)
        return name, manifest

    def _remove_leftovers(self, now: datetime) -> None:
        """Removes what killed backups have left; others may be under way."""
        for folder in self._scratch.glob(f"{_SCRATCH}*") if self._scratch else ():
            if folder.stat().st_mtime < (now - UNFINISHED_KEPT).timestamp():
                shutil.rmtree(folder)

    def _copy_sqlite(self, folder: Path) -> tuple[list[Path], _Contents]:
        from cli.backups.sqlite_copies import CopyDamaged, copy_in_use
        from services.chassis.database.database import open_database

        copied = [service for service in SERVICES if (self._data / f"{service}.db").exists()]
        self._require_needed(copied)
        try:
            for service in copied:
                copy_in_use(self._data / f"{service}.db", folder / f"{service}.db")
        except CopyDamaged as error:
            raise BackupUnusable(str(error)) from None
        with (
            opened(lambda service: open_database(service, "", folder), copied) as databases,
            _snapshots(databases) as connections,
        ):
            described = self._describe(connections)
        return [folder / name for name in file_names("sqlite", copied)], described

    def _dump_postgresql(self, folder: Path) -> tuple[list[Path], _Contents]:
        from cli.backups.postgres_programs import PostgresFailed, dump_schemas
        from services.chassis.database.database import open_database

        url = self._settings.database_url
        with (
            opened(lambda service: open_database(service, url, self._data), SERVICES) as databases,
            _snapshots(databases) as connections,
        ):
            snapshot = _share_snapshot(connections)
            found = {name: each for name, each in connections.items() if _has_schema(each, name)}
            self._require_needed(found)
            try:
                dump_schemas(url, snapshot, list(found), folder / DUMP)
            except PostgresFailed as error:
                raise BackupUnusable(str(error)) from None
            return [folder / DUMP], self._describe(found)

    def _require_needed(self, found: Collection[str]) -> None:
        if missing := [service for service in NEEDED if service not in found]:
            where = "the database" if self._settings.database_url else self._data
            raise BackupUnusable(f"there is no store of {' and '.join(missing)} in {where}: nothing was backed up")

    def _describe(self, connections: "Mapping[str, Connection]") -> _Contents:
        schemas = {service: read_schema(connection) for service, connection in connections.items()}
        recorded = recorded_peppers(connections["auth"]) if schemas["auth"].revision else {}
        return {
            "schemas": schemas,
            "totals": read_totals(connections),
            "secrets": fingerprints(given_secrets(self._settings, self._data)) | recorded,
        }


@contextmanager
def _snapshots(databases: "Mapping[str, Database]") -> "Iterator[dict[str, Connection]]":
    with ExitStack() as stack:
        yield {
            service: stack.enter_context(database.transaction(writes=False)) for service, database in databases.items()
        }


def _share_snapshot(connections: "Mapping[str, Connection]") -> str:
    """Has all of PostgreSQL's connections see one snapshot; returns its name."""
    first, *others = connections.values()
    snapshot = str(first.exec_driver_sql("SELECT pg_export_snapshot()").scalar_one())
    for other in others:
        other.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    for connection in connections.values():
        # They wait while the dump is written.
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
    return snapshot


def _has_schema(connection: "Connection", name: str) -> bool:
    return connection.exec_driver_sql(f"SELECT to_regnamespace('{name}')").scalar_one() is not None
