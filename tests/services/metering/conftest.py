from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

import services.metering
from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub, MeteringServiceStub
from services.chassis.database.database import Database
from services.chassis.exchange.client import ExchangeClient
from services.chassis.load.gcra import Rate
from services.chassis.rpc.channel import errors_of, open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.metering.credit.batch import Writer
from services.metering.credit.prices import Prices
from services.metering.credit.store.prices import adopt_prices
from services.metering.credit.unpaid_prompts import UnpaidPrompts
from services.metering.limits.rates import LocalLimiter, RateLimits
from services.metering.servicers.credit_admin import CreditAdminServicer
from services.metering.servicers.metering import MeteringServicer
from tests.services.metering.samples import LIFE_S, PRICES
from tests.services.metering.servicers.messages import Ask
from tests.support.fakes import FakeClock
from tests.support.servers.migrated import MigratedPostgres, migrated_sqlite

MIGRATIONS = Path(services.metering.__file__).parent / "migrations"


@pytest.fixture
def database_url(request: pytest.FixtureRequest, database_kind: str, tmp_path: Path) -> Iterator[str]:
    """A database with the tables of metering."""
    if database_kind == "sqlite":
        yield migrated_sqlite(tmp_path / "test.db", "metering", MIGRATIONS)
        return
    postgres: MigratedPostgres = request.getfixturevalue("migrated_postgres")
    with postgres.lend("metering", MIGRATIONS) as url:
        yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url, "metering")
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


@pytest.fixture
async def channel(
    database: Database, writer: Writer, socket_folder: Path, clock: FakeClock, log: Log
) -> AsyncIterator[grpc.aio.Channel]:
    limits = RateLimits(Rate(3_000, 2), concurrent_requests=2)
    unpaid = UnpaidPrompts(2, 20, 600, clock)
    metering = MeteringServicer(database, writer, LocalLimiter(clock), limits, log, unpaid_prompts=unpaid)
    admin = CreditAdminServicer(database, writer)
    listen = f"unix:{socket_folder}/metering.sock"
    server = RpcServer(listen, [metering, admin], log)
    await server.start()
    async with open_channel(listen) as channel:
        # A connection gets 50 ms to come up, which a busy machine may not give it; then a call that did not wait fails.
        await channel.channel_ready()
        yield channel
    await server.stop(1)


@pytest.fixture
def admin(channel: grpc.aio.Channel) -> Any:
    return CreditAdminServiceStub(channel)


@pytest.fixture(params=["rpc", "exchange"])
async def ask(request: pytest.FixtureRequest, channel: grpc.aio.Channel, log: Log) -> AsyncIterator[Ask]:
    """Asks by the method's name, once each way: both must say the same."""
    stub: Any = MeteringServiceStub(channel)
    exchange = ExchangeClient("Metering", stub.Exchange, pb.ExchangeRequest, log)

    async def by_rpc(method: str, message: Any) -> Any:
        with errors_of("Metering"):
            return await getattr(stub, method)(message)

    async def on_exchange(method: str, message: Any) -> Any:
        return await exchange.call(method, message, getattr(pb, f"{method}Response"), 10)

    if request.param == "rpc":
        yield by_rpc
        return
    exchange.start()
    await exchange.connected()
    yield on_exchange
    await exchange.close()
