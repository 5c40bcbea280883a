import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.console.large_accounts import MIGRATIONS, fill, measure
from services.chassis.database.database import Database
from services.metering.audit.auditor import audit

pytestmark = pytest.mark.long


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = f"sqlite:///{tmp_path / 'metering.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    database = Database(url, "metering")
    database.prepare(MIGRATIONS, migrates=True)
    yield database
    database.close()


async def test_reports_of_a_filled_account_are_measured_and_its_books_are_right(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    now_us = int(time.time()) * 1_000_000
    fill(database, 300, now_us)
    await measure(database, now_us)
    assert capsys.readouterr().out.count(" ms |\n") == 6
    assert await audit(database) == []
