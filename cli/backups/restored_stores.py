"""Makes restored stores ready for use: verifies that they are what was backed up, migrates and audits them."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from cli.backups.manifest import BackupUnusable, Manifest
from cli.backups.stores import OpenStore, migrations_of, opened, read_totals
from cli.supervision.environment import PEPPERS_VARIABLE

if TYPE_CHECKING:
    from services.chassis.database.database import Database


def require_known_schemas(manifest: Manifest) -> None:
    """Raises if a newer program has made the backup, whose schemas this one must not use."""
    from services.chassis.database.schema_version import revisions_of

    for service, schema in manifest.schemas.items():
        newest = revisions_of(migrations_of(service))[-1]
        if schema.oldest > newest:
            raise BackupUnusable(
                f"the backup was made by Legato {manifest.legato}, whose schema {service} {schema.revision} is too new "
                f"for this program, which knows {newest}: restore it with that release or a later one"
            )


def make_ready(manifest: Manifest, open_store: OpenStore, secrets: Mapping[str, str], now: datetime) -> list[str]:
    """Returns the violations of an audit; raises if the stores are not what was backed up. May be repeated."""
    with opened(open_store, tuple(manifest.schemas)) as databases:
        _require_totals(databases, manifest)
        for service, database in databases.items():
            database.migrate(migrations_of(service))
        _continue_epochs(databases["auth"], now)
        return [*_audit_books(databases["metering"]), *_audit_log(databases["auth"], secrets.get(PEPPERS_VARIABLE))]


def _require_totals(databases: "Mapping[str, Database]", manifest: Manifest) -> None:
    with (
        databases["auth"].transaction(writes=False) as auth,
        databases["metering"].transaction(writes=False) as metering,
    ):
        found = read_totals({"auth": auth, "metering": metering})
    if found != manifest.totals:
        raise BackupUnusable(f"the restored stores have {found}, and the manifest says {manifest.totals}")


def _continue_epochs(auth: "Database", now: datetime) -> None:
    from services.auth.records.times import to_micros
    from services.auth.store.epochs import continue_epochs_after_restore

    with auth.transaction(writes=True) as connection:
        continue_epochs_after_restore(connection, to_micros(now))


def _audit_books(metering: "Database") -> list[str]:
    from services.metering.auditor import find_violations

    with metering.transaction(writes=False) as connection:
        return find_violations(connection)


def _audit_log(auth: "Database", peppers: str | None) -> list[str]:
    """Verifies the chain of the users' audit log, which takes the peppers."""
    if peppers is None:
        return []
    from services.auth.audit.log import AuditLog
    from services.auth.peppers import parse_peppers
    from services.chassis.timing.deadlines import SystemClock

    with auth.transaction(writes=False) as connection:
        _, broken = AuditLog(parse_peppers(peppers), SystemClock()).verify(connection)
    return [f"audit log: the chain is broken at event {event_no}" for event_no in broken]
