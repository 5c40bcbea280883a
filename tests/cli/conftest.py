import shutil
from collections.abc import Iterator

import pytest

from cli.supervision.data_folder import sockets_folder
from tests.support.up import Up


@pytest.fixture(scope="package")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A service for tests that leave it as it is, on a folder whose name is too long for the path of a socket."""
    data = tmp_path_factory.mktemp("up") / ("a-folder-with-a-rather-long-name-" * 4)
    service = Up(data)
    service.ready()
    yield service
    assert service.stop() == 0
    service.close()
    shutil.rmtree(sockets_folder(data))
