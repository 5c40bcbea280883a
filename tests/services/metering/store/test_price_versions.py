from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.metering.audit import audit
from services.metering.batch import Writer
from services.metering.prices import Price, Prices
from services.metering.store.price_versions import adopt_prices, read_version
from tests.services.metering.samples import LIFE_S, PRICES, ask, grant, reserve, settle

DEARER = {**PRICES, "forte": Price(4_000_000, 4_000_000, 20_000_000)}


async def test_prices_that_did_not_change_keep_their_version(database: Database) -> None:
    for _ in range(2):
        prices = await database.write(lambda connection: adopt_prices(connection, PRICES))
        assert prices.current_version == 1


async def test_changed_prices_become_a_new_version_and_the_old_one_stays(database: Database) -> None:
    await database.write(lambda connection: adopt_prices(connection, PRICES))
    prices = await database.write(lambda connection: adopt_prices(connection, DEARER))
    assert prices.current_version == 2
    assert prices.current("forte") == DEARER["forte"]
    assert await database.read(lambda connection: read_version(connection, 1)) == PRICES


async def test_request_is_charged_by_the_version_it_began_with_also_after_a_restart(
    database: Database, writer: Writer, log: Log
) -> None:
    await ask(writer, grant(1_000))
    await ask(writer, reserve(1))
    # Started anew, the writer knows no version but the newest.
    prices: Prices = await database.write(lambda connection: adopt_prices(connection, DEARER))
    restarted = Writer(database, prices, LIFE_S, log)
    assert (await ask(restarted, settle(1, completion=3))).charged_nanos == 30
    await ask(restarted, reserve(2))
    assert (await ask(restarted, settle(2, completion=3))).charged_nanos == 60
    assert await audit(database) == []
