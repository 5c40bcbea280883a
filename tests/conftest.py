"""What tests share: databases, a Valkey, a clock, a log, and a folder for sockets."""

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from tests.support.fakes import FakeClock
from tests.support.postgres import Postgres
from tests.support.valkey import Valkey


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


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database: every test that asks for it runs once on each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


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
