"""`legato restore`."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.backups.settings import BackupSettings
from cli.command import HelpLine, Invocation, command
from cli.settings import SettingsWrong, read_settings
from services.chassis.errors import LegatoError
from services.chassis.process import failpoints
from services.chassis.settings import SettingsError

if TYPE_CHECKING:
    from cli.backups.manifest import Manifest

NEXT = (
    "Start the services: before it serves, auth revokes again what was revoked since the backup.",
    "Run `legato credits book-requests` half a minute later, for what edges have in their journals.",
    "Run `legato credits book-payments --from {began_at}`, if credit is bought by card.",
    "Run `legato accounts close --again`, which erases again the notes and documents of closed accounts.",
    "Run `legato audit`.",
)
EARLIER_SCHEMAS = (
    "The schemas are those of an earlier release, and were not audited: to go back, start that release; this one "
    "migrates them when its services start."
)

HELP = HelpLine(220, "Restore a backup.")


@command()
@click.argument("source", metavar="DIR|URL")
@click.option("--backup", "name", default="", metavar="NAME", help="Restore this backup.  [default: the newest]")
@click.option("--database", default="", metavar="NAME", help="Restore to this database of PostgreSQL, an empty one.")
@click.option("--replace", is_flag=True, help="Replace the SQLite files that are there, and keep them aside.")
def restore(invocation: Invocation, source: str, name: str, database: str, replace: bool) -> None:
    """Restore a backup to a new database, or to new SQLite files in the data folder; run it again if it was
    interrupted. Nothing is migrated: the release that the backup is of can start on it. Exits with 1 if an audit finds
    violations."""
    failpoints.watch(os.environ.get(failpoints.VARIABLE))
    settings = read_settings(BackupSettings)
    try:
        settings.check_target(source)
        restored, violations = _restore(invocation, settings, source, name, database, replace=replace)
    except SettingsError as error:
        raise SettingsWrong(str(error)) from None
    except LegatoError as error:
        raise click.ClickException(" ".join(getattr(error, "__notes__", [])) or error.message) from None
    invocation.show(restored | {"violations": violations})
    if violations:
        sys.exit(1)


def _restore(
    invocation: Invocation, settings: BackupSettings, source: str, name: str, database: str, *, replace: bool
) -> tuple[dict[str, object], list[str]]:
    from cli.backups.catalog import Catalog
    from cli.backups.manifest import BackupUnusable
    from cli.backups.postgres_restore import restore_postgresql
    from cli.backups.restored_stores import has_earlier_schemas, make_ready, require_known_schemas
    from cli.backups.secret_fingerprints import compare_secrets, fingerprints, given_secrets
    from cli.backups.sqlite_restore import SqliteRestore
    from cli.backups.stores import require_our_names
    from cli.supervision.audit_copy_place import missing_copy_warning
    from services.chassis.database.database import open_database
    from services.chassis.object_store import open_object_store

    catalog = Catalog(open_object_store(source), source)
    name = catalog.find(name)
    manifest = catalog.read_manifest(name)
    url, data, now = settings.database_url, invocation.data, datetime.now(UTC)
    if (manifest.store == "postgresql") is not bool(url):
        raise BackupUnusable(f"the backup {name} is of {manifest.store}: LEGATO_DATABASE_URL must {_be_set(manifest)}")
    require_our_names(manifest, name)
    require_known_schemas(manifest)
    secrets = given_secrets(settings, data)
    missing = compare_secrets(manifest.secrets, fingerprints(secrets))

    def ready_in(folder: Path, new_url: str = "") -> list[str]:
        return make_ready(manifest, lambda service: open_database(service, new_url, folder), secrets, now)

    then = [step.format(began_at=f"{manifest.began_at:%Y-%m-%dT%H:%M:%SZ}") for step in NEXT]
    steps = [EARLIER_SCHEMAS] if has_earlier_schemas(manifest) else []
    steps += [f"Provide {secret}." for secret in missing]
    if url:
        target, violations = restore_postgresql(
            catalog, name, manifest, url, database, lambda new_url: ready_in(data, new_url)
        )
        steps.append(f"Set LEGATO_DATABASE_URL to the database {target}, for auth, metering and router.")
        where = {"database": target}
    else:
        aside, violations = SqliteRestore(catalog, name, manifest, data).run(ready_in, now, replace=replace)
        where = {"data": str(data), "replaced": aside}
        missing_copy = missing_copy_warning(data, settings.audit_copy)
        steps += [f"Note: {missing_copy}."] if missing_copy else []
    return {"backup": name, "made_by": manifest.legato, **where, "next": [*steps, *then]}, violations


def _be_set(manifest: "Manifest") -> str:
    return "be set" if manifest.store == "postgresql" else "not be set"
