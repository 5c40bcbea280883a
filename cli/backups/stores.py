"""The stores of an installation: one for each service, with the scripts that migrate it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli.backups.manifest import BackedUpSchema, BookTotals

if TYPE_CHECKING:
    from services.chassis.database.database import Database

# In the order in which they are copied. Auth is last: what the others have refers to accounts and keys, all of which
# are in a later copy of auth, with the revocations of the meantime. An account that only auth has just has no credit.
SERVICES: Final = ("router", "metering", "auth")
# Those without which there is no installation.
NEEDED: Final = ("metering", "auth")
FOLDER: Final = Path(__file__).parents[2] / "services"

OpenStore = Callable[[str], "Database"]


def migrations_of(service: str) -> Path:
    return FOLDER / service / "migrations"


@contextmanager
def opened(open_store: OpenStore, services: Iterable[str]) -> "Iterator[dict[str, Database]]":
    with ExitStack() as stack:
        databases = {}
        for service in services:
            databases[service] = open_store(service)
            stack.callback(databases[service].close)
        yield databases


def read_schema(connection: Any) -> BackedUpSchema:
    from services.chassis.database.schema_version import read_version

    version = read_version(connection)
    return BackedUpSchema() if version is None else BackedUpSchema(version.revision, version.oldest)


def read_totals(connections: Mapping[str, Any]) -> BookTotals:
    def ask(service: str, query: str) -> int:
        return int(connections[service].exec_driver_sql(query).scalar_one())

    return BookTotals(
        accounts=ask("auth", "SELECT count(*) FROM accounts"),
        keys=ask("auth", "SELECT count(*) FROM api_keys"),
        ledger_entries=ask("metering", "SELECT count(*) FROM ledger"),
        balance_nanos=ask("metering", "SELECT coalesce(sum(balance_nanos), 0) FROM accounts"),
    )
