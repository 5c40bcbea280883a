"""Makes restored stores ready for use: verifies that they are what was backed up, and audits them."""

from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from typing import TYPE_CHECKING

from cli.backups.manifest import BackupUnusable, Manifest
from cli.backups.stores import OpenStore, migrations_of, opened, read_schema, read_totals
from cli.supervision.environment import PEPPERS_VARIABLE

if TYPE_CHECKING:
    from services.chassis.database.database import Database


def require_known_schemas(manifest: Manifest) -> None:
    """Raises if a newer program has made the backup, whose schemas this one must not use."""
    for service, schema in manifest.schemas.items():
        newest = _newest_of(service)
        if schema.oldest > newest:
            raise BackupUnusable(
                f"the backup was made by Legato {manifest.legato}, whose schema {service} {schema.revision} is too new "
                f"for this program, which knows {newest}: restore it with that release or a later one"
            )


def has_earlier_schemas(manifest: Manifest) -> bool:
    """Returns whether this program would migrate the stores before it uses them."""
    return any(schema.revision < _newest_of(service) for service, schema in manifest.schemas.items())


def make_ready(manifest: Manifest, open_store: OpenStore, secrets: Mapping[str, str], now: datetime) -> list[str]:
    """Returns the violations of an audit; raises if the stores are not what was backed up. May be repeated.

    Schemas stay what they are, so that the release that the backup is of can start on them: this one migrates them when
    it starts, and can audit them only then."""
    with opened(open_store, tuple(manifest.schemas)) as databases:
        _require_same(databases, manifest)
        _continue_epochs(databases["auth"], now)
        if has_earlier_schemas(manifest):
            return []
        return [*_audit_books(databases["metering"]), *_audit_log(databases["auth"], secrets.get(PEPPERS_VARIABLE))]


def _newest_of(service: str) -> str:
    from services.chassis.database.schema_version import revisions_of

    return revisions_of(migrations_of(service))[-1]


def _require_same(databases: "Mapping[str, Database]", manifest: Manifest) -> None:
    from cli.backups.inspection import inspected

    with ExitStack() as stack:
        connections = {name: stack.enter_context(inspected(each)) for name, each in databases.items()}
        for service, connection in connections.items():
            if (schema := read_schema(connection)) != manifest.schemas[service]:
                raise BackupUnusable(
                    f"the restored store {service} has {schema}, and the manifest says {manifest.schemas[service]}"
                )
        found = read_totals(connections)
    if found != manifest.totals:
        raise BackupUnusable(f"the restored stores have {found}, and the manifest says {manifest.totals}")


def _continue_epochs(auth: "Database", now: datetime) -> None:
    from services.auth.core.times import to_micros
    from services.auth.keys.store.epochs import continue_epochs_after_restore

    with auth.transaction(writes=True) as connection:
        continue_epochs_after_restore(connection, to_micros(now))


def _audit_books(metering: "Database") -> list[str]:
    from services.metering.audit.auditor import find_violations

    with metering.transaction(writes=False) as connection:
        return find_violations(connection)


def _audit_log(auth: "Database", peppers: str | None) -> list[str]:
    """Verifies the chain of the users' audit log, which takes the peppers."""
    if peppers is None:
        return []
    from services.auth.core.audit_log import AuditLog
    from services.auth.core.peppers import parse_peppers
    from services.chassis.timing.deadlines import SystemClock

    with auth.transaction(writes=False) as connection:
        _, broken = AuditLog(parse_peppers(peppers), SystemClock()).verify(connection)
    return [f"audit log: the chain is broken at event {event_no}" for event_no in broken]
