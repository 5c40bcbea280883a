import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.supervision.data_folder import sockets_folder
from services.chassis.telemetry.log import Log
from tests.cli.backed_up import BackedUp, migrate_all
from tests.support.servers.postgres import Postgres
from tests.support.up import Up


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service for tests that leave it as it is, on a folder whose name is too long for the path of a socket."""
    data = tmp_path_factory.mktemp("up") / ("a-folder-with-a-rather-long-name-" * 4)
    service = Up(data, is_forked=True)
    service.ready()
    yield service
    assert service.stop() == 0
    service.close()
    shutil.rmtree(sockets_folder(data))


@pytest.fixture(scope="package")
def migrated_url(postgres_server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with the schemas of all services, to be copied."""
    url = postgres_server.create_database()
    migrate_all(url, tmp_path_factory.mktemp("migrated"))
    return url


@pytest.fixture
def backed_up(request: pytest.FixtureRequest, database_kind: str, socket_folder: Path, log: Log) -> Iterator[BackedUp]:
    data = socket_folder / "data"
    data.mkdir()
    if database_kind == "sqlite":
        migrate_all("", data)
        made = BackedUp(data, "", "/nowhere")
        made.fill(log)
        yield made
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    url = server.create_database(request.getfixturevalue("migrated_url"))
    made = BackedUp(data, url, str(server.binaries))
    made.fill(log)
    yield made
    server.drop_database(url)
