from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.metering.limits.valkey_link import Link


@pytest.fixture
def link(socket_folder: Path, valkey_url: str) -> Iterator[Link]:
    link = Link(socket_folder, valkey_url)
    yield link
    link.close()
