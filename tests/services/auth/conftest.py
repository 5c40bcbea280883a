"""Auth on a real server and a real database, with a clock and a wait that tests control."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from services.auth.core.peppers import Peppers
from services.auth.service import MIGRATIONS, AuthService
from services.chassis.database.database import Database
from services.chassis.rpc.channel import open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.services.auth.client import AuthClient
from tests.support.fakes import FakeClock
from tests.support.servers.migrated import MigratedPostgres, migrated_sqlite


class FakeSleep:
    """Returns at once and remembers for how long it was asked to wait; after `hold()` only when it is let go."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self._began = asyncio.Event()
        self._may_return = asyncio.Event()
        self._may_return.set()

    def hold(self) -> None:
        self._may_return.clear()

    def let_go(self) -> None:
        self._may_return.set()

    async def wait_until_asked(self) -> None:
        async with asyncio.timeout(60):
            await self._began.wait()

    async def __call__(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self._began.set()
        await self._may_return.wait()


@pytest.fixture
def peppers() -> Peppers:
    return Peppers({1: b"a pepper for tests, 32 bytes long"})


@pytest.fixture
def database_url(request: pytest.FixtureRequest, database_kind: str, tmp_path: Path) -> Iterator[str]:
    """A database with the tables of auth."""
    if database_kind == "sqlite":
        yield migrated_sqlite(tmp_path / "test.db", "auth", MIGRATIONS)
        return
    postgres: MigratedPostgres = request.getfixturevalue("migrated_postgres")
    with postgres.lend("auth", MIGRATIONS) as url:
        yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url, "auth")
    yield opened
    opened.close()


@pytest.fixture
def writing(database: Database) -> Iterator[sa.Connection]:
    with database.transaction(writes=True) as connection:
        yield connection


@pytest.fixture
async def sleep() -> FakeSleep:
    return FakeSleep()


@pytest.fixture
def auth(database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep) -> AuthService:
    return AuthService(database, peppers, clock, log, sleep)


@pytest.fixture
async def client(auth: AuthService, log: Log, socket_folder: Path) -> AsyncIterator[AuthClient]:
    address = f"unix:{socket_folder}/auth.sock"
    server = RpcServer(address, auth.servicers, log)
    await server.start()
    async with open_channel(address) as channel:
        yield AuthClient(channel)
    await server.stop(0)
