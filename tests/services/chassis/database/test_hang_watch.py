"""A PostgreSQL that stops answering: its connections are given up. Long transactions of one that answers go on."""

import asyncio
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from services.chassis.database import database as database_module
from services.chassis.database import hang_watch
from services.chassis.database.database import Database
from services.chassis.database.engine import CONNECT_TIMEOUT_S, make_engine
from services.chassis.database.hang_watch import LONG_S
from services.chassis.database.outages import DatabaseUnavailable
from tests.support.servers.postgres import Postgres

# Within which a test that hangs is given up.
TIMEOUT_S = 60


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    """A server that may be stopped."""
    server = Postgres()
    server.start()
    yield server
    server.stop()


def select_one(connection: sa.Connection) -> int:
    return int(connection.execute(sa.text("SELECT 1")).scalar_one())


async def test_callers_of_a_server_that_hangs_are_told_and_served_by_its_successor(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The timeouts of the product, which other tests raise for busy machines.
    monkeypatch.setattr(hang_watch, "CONNECT_TIMEOUT_S", CONNECT_TIMEOUT_S)
    monkeypatch.setattr(database_module, "make_engine", make_engine)
    database = Database(postgres.create_database(), "test")
    assert (await database.write(select_one), await database.read(select_one)) == (1, 1)
    postgres.freeze()
    async with asyncio.timeout(TIMEOUT_S):
        calls = [database.write(select_one), *(asyncio.ensure_future(database.read(select_one)) for _ in range(6))]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {DatabaseUnavailable}
        postgres.kill()
        postgres.start_again()
        assert (await database.write(select_one), await database.read(select_one)) == (1, 1)
    database.close()


async def test_long_transaction_of_a_server_that_answers_goes_on(postgres_url: str) -> None:
    database = Database(postgres_url, "test")

    def sleep(connection: sa.Connection) -> int:
        connection.execute(sa.text("SELECT pg_sleep(:s)"), {"s": 3 * LONG_S})
        return 1

    assert sum(await asyncio.gather(database.write(sleep), database.read(sleep))) == 2
    database.close()
