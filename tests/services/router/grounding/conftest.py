"""Notes and files, on a real database; and a router whose model may search."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.router.grounding.assembly import MIGRATIONS
from services.router.grounding.documents.attachments import Attachments
from services.router.grounding.documents.notes import Notes
from services.router.grounding.sealing import Sealer
from tests.services.router.grounding.harness import KEY, RouterGroundingHarness, running_harness
from tests.support.fakes import FakeClock
from tests.support.outside.searx import Searx, page
from tests.support.servers.migrated import migrated_sqlite
from tests.support.upstreams.openai import Upstream

# For tests in which the database does more than to keep rows.
ON_EACH_DATABASE = pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if getattr(request, "param", "sqlite") == "sqlite":
        return migrated_sqlite(tmp_path / "test.db", "router", MIGRATIONS)
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def sealer() -> Sealer:
    return Sealer({1: KEY})


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url, "router")
    opened.migrate(MIGRATIONS)
    yield opened
    opened.close()


@pytest.fixture
def notes(database: Database, sealer: Sealer, clock: FakeClock) -> Notes:
    return Notes(database, sealer, clock)


@pytest.fixture
def attachments(database: Database, sealer: Sealer, clock: FakeClock) -> Attachments:
    return Attachments(database, sealer, clock)


@pytest.fixture
async def searx() -> AsyncIterator[Searx]:
    async with Searx() as searx:
        searx.results = [page(1), page(2)]
        yield searx


@pytest.fixture
async def harness(
    socket_folder: Path, log: Log, upstream: Upstream, searx: Searx
) -> AsyncIterator[RouterGroundingHarness]:
    async with running_harness(socket_folder, log, upstream, searx=searx, search_timeout_s=30) as harness:
        yield harness
