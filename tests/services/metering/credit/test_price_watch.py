"""Prices that change while metering runs."""

import time
from pathlib import Path

import pytest

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.metering.credit.batch import Writer
from services.metering.credit.price_watch import PriceWatch
from services.metering.credit.prices import Prices, read_prices
from services.metering.credit.store.prices import adopt_prices, open_prices, read_schedule
from tests.services.metering.credit.test_prices import WHOLE
from tests.services.metering.samples import LIFE_S, ask, grant, reserve, settle

pytestmark = pytest.mark.sqlite_suffices


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "prices.toml"
    path.write_text(WHOLE)
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
async def watch(database: Database, prices: Prices, path: Path, log: Log) -> PriceWatch:
    return PriceWatch(path, database, prices, log, Registry())


async def test_a_running_chat_keeps_its_price_while_new_ones_get_another(
    database: Database, prices: Prices, watch: PriceWatch, path: Path, log: Log
) -> None:
    writer = Writer(database, prices, LIFE_S, log)
    await ask(writer, grant(1_000_000))
    before = await ask(writer, reserve(1))
    write(path, WHOLE.replace('"3.45"', '"7.00"'))
    await watch.look()
    after = await ask(writer, reserve(2))
    assert tuple(each.price.output_nanos_per_million for each in (before, after)) == (10_000_000, 7_000_000_000)
    assert (await ask(writer, settle(1, completion=2))).charged_nanos == 20
    assert (await ask(writer, settle(2, completion=2))).charged_nanos == 14_000
    await writer.close()


async def test_a_file_with_a_mistake_changes_nothing(
    database: Database, prices: Prices, watch: PriceWatch, path: Path
) -> None:
    write(path, WHOLE.replace('"3.45"', '"much"'))
    await watch.look()
    assert prices.current_version == 1
    write(path, WHOLE)
    await watch.look()
    assert prices.current_version == 2


async def test_prices_that_another_replica_adopts_are_followed(
    database: Database, prices: Prices, watch: PriceWatch
) -> None:
    dearer = {"forte": prices.of_version(1, "mezzo"), "mezzo": prices.of_version(1, "mezzo")}
    await database.write(adopt_prices, dearer)
    await watch.look()
    assert prices.current_version == 2
    assert (await database.read(read_schedule)).current_version == 2


class Replica:
    """A replica with a price file of its own, as in a pod, that shares the database with others."""

    def __init__(self, path: Path, database: Database, log: Log) -> None:
        self.path = path
        path.write_text(WHOLE)
        with database.transaction(writes=True) as connection:
            self.prices = open_prices(connection, read_prices(path), shares=True)
        self.watch = PriceWatch(path, database, self.prices, log, Registry(), shares=True)


async def look(replicas: list[Replica]) -> list[int]:
    """Returns the version that each has for requests in an hour."""
    for _ in range(2):
        for replica in replicas:
            await replica.watch.look()
    return [replica.prices.version_at(time.time_ns() // 1000 + 3_600_000_000) for replica in replicas]


async def test_replicas_adopt_a_file_together_once_all_have_read_it(
    database: Database, tmp_path: Path, log: Log
) -> None:
    replicas = [Replica(tmp_path / f"prices-{number}.toml", database, log) for number in (1, 2)]
    assert await look(replicas) == [1, 1]
    replicas[0].path.write_text(WHOLE.replace('"3.45"', '"7.00"'))
    assert await look(replicas) == [1, 1]
    # One that starts with the old file does not bring its prices back, and one with a mistake changes nothing.
    replicas.append(Replica(tmp_path / "prices-3.toml", database, log))
    replicas[1].path.write_text(WHOLE.replace('"3.45"', '"much"'))
    assert await look(replicas) == [1, 1, 1]
    for replica in replicas:
        replica.path.write_text(WHOLE.replace('"3.45"', '"7.00"'))
    assert await look(replicas) == [2, 2, 2]
    # All change at the same time, which comes after each has read of it.
    assert {replica.prices.current_version for replica in replicas} == {1}
    [start] = {each.effective_from_us for replica in replicas for each in replica.prices.scheduled}
    assert start > time.time_ns() // 1000
