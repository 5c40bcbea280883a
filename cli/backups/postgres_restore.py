"""Restores a backup to a new database of PostgreSQL."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from cli.backups.catalog import Catalog
from cli.backups.manifest import BackupUnusable, Manifest, require_same
from cli.backups.stores import SERVICES
from services.chassis.process import failpoints


def restore_postgresql(
    catalog: Catalog,
    name: str,
    manifest: Manifest,
    server_url: str,
    database: str,
    make_ready: Callable[[str], list[str]],
) -> tuple[str, list[str]]:
    """Returns the name of the new database, and the violations that `make_ready` has found in it. A restore that was
    interrupted begins again."""
    from cli.backups import restored_database as target
    from cli.backups.postgres_programs import (
        PostgresFailed,
        require_program,
        require_schemas,
        restore_schemas,
    )

    database = database or f"{target.name_of(server_url)}_{name.lower()}"
    url = target.url_of(server_url, database)
    [file] = manifest.files
    try:
        with tempfile.TemporaryDirectory(prefix="legato-restore-") as folder:
            dump = Path(folder) / file.name
            catalog.save(name, file.name, dump)
            require_same(dump, file)
            require_schemas(dump, tuple(manifest.schemas))
            target.create_database(server_url, database)
            require_program(url, "pg_restore")
            failpoints.hit("restore.step")
            target.begin_restore(url, name, SERVICES)
            failpoints.hit("restore.step")
            restore_schemas(url, dump)
        failpoints.hit("restore.step")
        violations = make_ready(url)
        failpoints.hit("restore.step")
        target.end_restore(url)
    except target.TargetNotEmpty as error:
        raise BackupUnusable(f"{error}: name another one with --database") from None
    except PostgresFailed as error:
        raise BackupUnusable(str(error)) from None
    return database, violations
