from collections.abc import Iterator
from pathlib import Path

import pytest

from services.metering.limits import valkey
from tests.services.metering.limits.valkey_link import Link


@pytest.fixture
def link(socket_folder: Path, valkey_url: str) -> Iterator[Link]:
    link = Link(socket_folder, valkey_url)
    yield link
    link.close()


@pytest.fixture(autouse=True)
def patient_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for a server on a busy machine, which is not away if it takes a quarter of a second."""
    monkeypatch.setattr(valkey, "LOOKS", 1_000)
