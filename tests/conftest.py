"""What tests share: databases, a Valkey, a clock, a log, and a folder for sockets; and the lane of each test.

A lane says what a test needs, so that `make check` can run those that need nothing. It follows from the test's folder,
its module's imports and its fixtures; see `markers` in pyproject.toml.
"""

import gc
import io
import shutil
import subprocess
import tempfile
from asyncio.selector_events import BaseSelectorEventLoop
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import hypothesis
import psycopg
import pytest
import sqlalchemy

from services.chassis.database import database, hang_watch
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from tests.support.accepted_late import accept_unless_closed
from tests.support.fakes import FakeClock
from tests.support.forked.service_process import ServiceProcess
from tests.support.servers.child import start_child
from tests.support.servers.migrated import MigratedPostgres
from tests.support.servers.postgres import Postgres
from tests.support.servers.s3 import S3
from tests.support.servers.valkey import Valkey
from tests.support.service import Service
from tests.support.shared_dialects import PATIENCE_S, SharedDialects
from tests.support.up import Up
from tests.support.workers.plugin import SHARED_FOLDER

# A busy machine takes longer over an example than the 200 ms of the default. `make properties`
# tries many more, and others each time.
hypothesis.settings.register_profile("suite", deadline=None, max_examples=30, derandomize=True)
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=1_000)
hypothesis.settings.load_profile("suite")

TESTS = Path(__file__).parent
# The slowest first, so that no worker is left alone with them at the end.
LANES = ("service", "stores", "rpc", "unit")
SERVICE_FOLDERS = frozenset({"agents", "bench", "campaigns", "deploy", "e2e", "examples"})
BROWSER_FOLDER = TESTS / "console" / "browser"
# The tests of each share a service or a browser, and one worker should run them; what takes longest begins first.
SHARED_FOLDERS = ("e2e", "console", "cli", "examples", "bench")
# Workers take over the last tests of each other. With these among them, each would import the clients of the vendors.
VENDORS_FOLDER = TESTS / "support" / "upstreams"
IMPORTS = {"service": (Service, ServiceProcess, Up, start_child, subprocess), "stores": (Database, psycopg, sqlalchemy)}
FIXTURES = {
    "stores": frozenset({"database_kind", "database_url", "postgres_server", "s3_server", "valkey_server"}),
    "rpc": frozenset({"socket_folder"}),
}
LANE = pytest.StashKey[str]()


def pytest_collection_finish(session: pytest.Session) -> None:
    # Modules and tests stay; the garbage collector need not visit them again.
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Saves the unit lane the import of folders that have no part in it."""
    if config.getoption("markexpr").startswith("unit"):
        is_apart = collection_path.parent == TESTS and collection_path.name in SERVICE_FOLDERS
        return is_apart or collection_path == BROWSER_FOLDER or None
    return None


def pytest_itemcollected(item: pytest.Item) -> None:
    if item.get_closest_marker("sqlite_suffices") and _is_on_postgresql(item):
        item.add_marker("long")
    item.stash[LANE] = _lane_of(item)
    item.add_marker(item.stash[LANE])
    folder = item.path.relative_to(TESTS).parts[0]
    item.stash[SHARED_FOLDER] = folder if item.stash[LANE] == "service" and folder in SHARED_FOLDERS else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_place)


def _place(item: pytest.Item) -> tuple[int, bool, int]:
    folder = item.stash[SHARED_FOLDER]
    shared = len(SHARED_FOLDERS) if folder is None else SHARED_FOLDERS.index(folder)
    return LANES.index(item.stash[LANE]), not _is_of_vendors(item.path), shared


def _lane_of(item: pytest.Item) -> str:
    assert isinstance(item, pytest.Function)
    if _needs_service(item.path):
        return "service"
    if _is_on_postgresql(item):
        # Asked for by name while the test is set up, so it is not among the fixtures.
        return "stores"
    imported = _lanes_of_imports(item.module)
    for lane in LANES:
        if lane in imported or FIXTURES.get(lane, frozenset()).intersection(item.fixturenames):
            return lane
    return "unit"


@cache
def _is_of_vendors(path: Path) -> bool:
    return path.is_relative_to(VENDORS_FOLDER)


@cache
def _needs_service(path: Path) -> bool:
    return path.relative_to(TESTS).parts[0] in SERVICE_FOLDERS or path.is_relative_to(BROWSER_FOLDER)


@cache
def _lanes_of_imports(module: ModuleType) -> frozenset[str]:
    """Returns the lanes of which a module has imported something."""
    imported = {id(value) for value in vars(module).values()}
    return frozenset(lane for lane, values in IMPORTS.items() if any(id(value) in imported for value in values))


def _is_on_postgresql(item: pytest.Item) -> bool:
    return hasattr(item, "callspec") and "postgresql" in item.callspec.params.values()


@pytest.fixture(autouse=True)
def only_what_the_lane_has(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test of the unit lane that starts a database or the service after all."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.stash[LANE] == "unit":
            for kind in (Postgres, Valkey, Service):
                patch.setattr(kind, "start", _refuse_to_start)
        yield


def _refuse_to_start(server: object) -> None:
    raise AssertionError(f"a test of the unit lane starts {type(server).__name__}: see _lane_of in tests/conftest.py")


@pytest.fixture(scope="session", autouse=True)
def databases_of_busy_machines() -> Iterator[None]:
    """Compiles statements once in a test process, and waits longer for servers than the product does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "make_engine", SharedDialects().make_engine)
        patch.setattr(hang_watch, "CONNECT_TIMEOUT_S", PATIENCE_S)
        yield


@pytest.fixture(scope="session", autouse=True)
def accepted_late_closed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseSelectorEventLoop, "_accept_connection2", accept_unless_closed)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    server = Postgres()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> Iterator[str]:
    """A fresh database in PostgreSQL."""
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server: Postgres) -> Iterator[MigratedPostgres]:
    """Databases for tests that are not about migrations."""
    databases = MigratedPostgres(postgres_server)
    yield databases
    databases.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Runs every test that asks for it, or for a database, once on each kind."""
    kind: str = request.param
    return kind


@pytest.fixture
def database_url(request: pytest.FixtureRequest, database_kind: str, tmp_path: Path) -> str:
    """A fresh database."""
    if database_kind == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    server = S3()
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    server = Valkey()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def valkey_url(valkey_server: Valkey) -> str:
    """An empty Valkey."""
    valkey_server.forget_everything()
    return valkey_server.url


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log_stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def log(log_stream: io.StringIO) -> Log:
    """A log at debug level; `log_text()` gives what was written to it."""
    return Log("test", log_stream, debug=True)


@pytest.fixture
def log_text(log_stream: io.StringIO) -> Callable[[], str]:
    return log_stream.getvalue


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    """A folder with a short name: the path of a unix socket may have about a hundred characters."""
    folder = Path(tempfile.mkdtemp(prefix="lg-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
