from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.metering.batch import Writer
from services.metering.claims import CLAIM_LIFE_US
from services.metering.store.old_claims import forget_claims
from services.metering.store.price_versions import adopt_prices
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.samples import LIFE_S, PRICES, ask_each, claimed, grant, request_id, reserve

OLD = f"UPDATE claims SET claimed_at_us = claimed_at_us - {CLAIM_LIFE_US + 1_000}"


def claimants_in(database: Database) -> list[str]:
    with database.transaction(writes=False) as connection:
        return list(connection.exec_driver_sql("SELECT request_id FROM claims ORDER BY request_id").scalars())


async def test_claims_are_forgotten_when_their_day_is_over_the_oldest_first(database: Database, writer: Writer) -> None:
    await ask_each(writer, grant(1_000), *(reserve(number, claim=claimed(f"key {number}")) for number in range(4)))
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(f"{OLD} WHERE request_id <> '{request_id(3)}'")
        connection.exec_driver_sql(f"UPDATE claims SET claimed_at_us = 1 WHERE request_id = '{request_id(2)}'")
    assert await database.write(lambda connection: forget_claims(connection, 1)) == 1
    assert claimants_in(database) == [request_id(0), request_id(1), request_id(3)]
    assert await database.write(lambda connection: forget_claims(connection, 10)) == 2
    assert await database.write(lambda connection: forget_claims(connection, 10)) == 0
    assert claimants_in(database) == [request_id(3)]


async def test_claim_that_a_batch_is_taking_over_is_not_waited_for(postgres_url: str, log: Log) -> None:
    database, replica = Database(postgres_url, "metering"), Database(postgres_url, "metering")
    database.migrate(MIGRATIONS)
    prices = await database.write(lambda connection: adopt_prices(connection, PRICES))
    writer = Writer(database, prices, LIFE_S, log)
    await ask_each(writer, grant(1_000), reserve(1, claim=claimed("a")), reserve(2, claim=claimed("b")))
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(OLD)
    with replica.transaction(writes=True) as connection:
        connection.exec_driver_sql(f"UPDATE claims SET request_id = 'new' WHERE request_id = '{request_id(1)}'")
        assert await database.write(lambda connection: forget_claims(connection, 10)) == 1
    replica.close()
    assert claimants_in(database) == ["new"]
    database.close()
