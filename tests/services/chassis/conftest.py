from collections.abc import Iterator
from pathlib import Path

import pytest

from services.chassis.database.database import Database
from tests.services.chassis.gate_harness import GateHarness
from tests.services.chassis.notes import ENVIRONMENT, MIGRATION
from tests.support.fakes import FakeClock


@pytest.fixture
def harness(clock: FakeClock) -> GateHarness:
    return GateHarness(clock)


@pytest.fixture
def migrations(tmp_path: Path) -> Path:
    """The scripts that make the table of notes."""
    folder = tmp_path / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENVIRONMENT)
    (folder / "versions" / "0001_notes.py").write_text(MIGRATION)
    return folder


@pytest.fixture
def database(database_url: str, migrations: Path) -> Iterator[Database]:
    database = Database(database_url, "example")
    database.migrate(migrations)
    yield database
    database.close()
