import asyncio

import pytest

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.metering.audit.sweeper import Sweeper
from services.metering.credit.batch import Writer
from services.metering.credit.prices import Prices
from services.metering.metrics import show_ledger
from tests.services.metering.samples import ask, ask_each, grant, reserve, settle

pytestmark = pytest.mark.sqlite_suffices


@pytest.fixture
def database_kind() -> str:
    """The counts are the same on any database."""
    return "sqlite"


async def test_books_tell_what_was_asked_of_them_and_what_became_of_it(
    database: Database, prices: Prices, log: Log
) -> None:
    registry = Registry()
    hasty = Writer(database, prices, -1.0, log)
    sweeper = Sweeper(database, hasty, 1.0, log)
    show_ledger(hasty, sweeper, registry)

    def operations(kind: str, outcome: str) -> float | None:
        return registry.get_sample_value("legato_operations_total", {"operation": kind, "outcome": outcome})

    await ask_each(hasty, grant(1_000), reserve(1), reserve(2))
    poor, unknown = ask(hasty, reserve(3, account="another")), ask(hasty, settle(9))
    assert registry.get_sample_value("legato_operations_waiting") == 2
    await asyncio.gather(poor, unknown, return_exceptions=True)
    await sweeper.sweep()
    assert operations("grant", "done") == 1
    assert operations("reserve", "done") == 2
    assert operations("reserve", "CREDITS_EXHAUSTED") == 1
    assert operations("sweep", "done") == 2
    assert registry.get_sample_value("legato_settlements_unmatched_total") == 1
    assert registry.get_sample_value("legato_holds_swept_total") == 2
    assert registry.get_sample_value("legato_batch_operations_sum") == 7
    written = registry.get_sample_value("legato_batch_operations_count")
    assert registry.get_sample_value("legato_batch_write_seconds_count") == written
    assert registry.get_sample_value("legato_operations_waiting") == 0
