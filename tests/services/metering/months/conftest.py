from collections.abc import AsyncIterator

import pytest

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.credit.prices import Prices
from tests.support.database_time import DatabaseTime


@pytest.fixture
def database_time(monkeypatch: pytest.MonkeyPatch) -> DatabaseTime:
    return DatabaseTime(monkeypatch)


@pytest.fixture
async def hasty(database: Database, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    """Its holds are overdue at once."""
    writer = Writer(database, prices, -1.0, log)
    yield writer
    await writer.close()
