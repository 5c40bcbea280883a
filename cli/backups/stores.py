"""The stores of an installation: one for each service, with the scripts that migrate it, and its file in a backup."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.backups.manifest import BackedUpSchema, BackupUnusable, BookTotals, Manifest

if TYPE_CHECKING:
    from services.chassis.database.database import Database
    from services.metering.store import Connection

# In the order in which they are copied. Auth is last: what the others have refers to accounts and keys, all of which
# are in a later copy of auth, with the revocations of the meantime. An account that only auth has just has no credit.
SERVICES: Final = ("router", "metering", "auth")
# Those without which there is no installation.
NEEDED: Final = ("metering", "auth")
FOLDER: Final = Path(__file__).parents[2] / "services"
DUMP: Final = "legato.dump"
_QUOTED_MOST: Final = 60

OpenStore = Callable[[str], "Database"]


def migrations_of(service: str) -> Path:
    return FOLDER / service / "migrations"


def file_names(store: str, services: Iterable[str]) -> list[str]:
    return [DUMP] if store == "postgresql" else [f"{service}.db" for service in services]


def require_our_names(manifest: Manifest, backup: str) -> None:
    """Raises unless all schemas and files are those of our services: their names become paths and migrations."""
    if strange := [name for name in manifest.schemas if name not in SERVICES]:
        raise BackupUnusable(
            f"the backup {backup} has the schema {_quoted(strange)}, which is none of {', '.join(SERVICES)}: it was "
            "made by a newer release, or tampered with"
        )
    if missing := [name for name in NEEDED if name not in manifest.schemas]:
        raise BackupUnusable(f"the backup {backup} has no schema {' and '.join(missing)}: it was tampered with")
    expected, found = file_names(manifest.store, manifest.schemas), [file.name for file in manifest.files]
    if sorted(found) != sorted(expected):
        raise BackupUnusable(
            f"the backup {backup} has the files {_quoted(found)}, and its schemas are in {', '.join(expected)}: it was "
            "made by a newer release, or tampered with"
        )


def _quoted(names: Iterable[str]) -> str:
    """Quotes names that others have chosen, for one line of a terminal."""
    return ascii(", ".join(names))[:_QUOTED_MOST]


@contextmanager
def opened(open_store: OpenStore, services: Iterable[str]) -> "Iterator[dict[str, Database]]":
    with ExitStack() as stack:
        databases = {}
        for service in services:
            databases[service] = open_store(service)
            stack.callback(databases[service].close)
        yield databases


def read_schema(connection: "Connection") -> BackedUpSchema:
    from services.chassis.database.schema_version import read_version

    version = read_version(connection)
    return BackedUpSchema() if version is None else BackedUpSchema(version.revision, version.oldest)


def read_totals(connections: "Mapping[str, Connection]") -> BookTotals:
    def ask(service: str, query: str) -> int:
        return int(connections[service].exec_driver_sql(query).scalar_one())

    return BookTotals(
        accounts=ask("auth", "SELECT count(*) FROM accounts"),
        keys=ask("auth", "SELECT count(*) FROM api_keys"),
        ledger_entries=ask("metering", "SELECT count(*) FROM ledger"),
        balance_nanos=ask("metering", "SELECT coalesce(sum(balance_nanos), 0) FROM accounts"),
    )
