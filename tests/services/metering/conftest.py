from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import services.metering
from services.chassis.database import Database
from services.chassis.log import Log
from services.metering.batch import Writer
from services.metering.prices import Prices
from services.metering.store.price_versions import adopt_prices
from tests.services.metering.samples import LIFE_S, PRICES

MIGRATIONS = Path(services.metering.__file__).parent / "migrations"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, "metering")
    database.migrate(MIGRATIONS)
    yield database
    database.close()


@pytest.fixture
def prices(database: Database) -> Prices:
    with database.transaction(writes=True) as connection:
        return adopt_prices(connection, PRICES)


@pytest.fixture
async def writer(database: Database, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    writer = Writer(database, prices, LIFE_S, log)
    yield writer
    await writer.close()
