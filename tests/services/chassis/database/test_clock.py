"""A machine whose time of day is wrong, beside a database whose time is right."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from services.chassis.database import clock as database_clock
from services.chassis.database.clock import DatabaseClock, read_now_us
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from tests.support.fakes import FakeClock

NEAR = timedelta(seconds=10)


def is_right(clock: DatabaseClock, ahead: timedelta = timedelta()) -> bool:
    return abs(clock.now() - ahead - datetime.now(UTC)) < NEAR


async def test_time_is_the_databases_and_not_our_own(database: Database, clock: FakeClock) -> None:
    ours = DatabaseClock(database, clock)
    assert not is_right(ours)
    await ours.set()
    assert is_right(ours)
    now_us = await database.read(read_now_us)
    assert abs(ours.now() - datetime.fromtimestamp(now_us / 1e6, UTC)) < NEAR


async def test_time_goes_on_while_the_database_is_not_asked(database: Database, clock: FakeClock) -> None:
    ours = DatabaseClock(database, clock)
    await ours.set()
    clock.advance(3600)
    assert is_right(ours, ahead=timedelta(hours=1))
    assert ours.elapsed_s() == clock.elapsed_s()


async def test_time_is_set_right_again_by_itself(
    database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_clock, "ASKED_EVERY_S", 0.01)
    ours = DatabaseClock(database, clock)
    keeping = asyncio.create_task(ours.keep_right())
    # As on a machine whose clocks stood still, or went on without us.
    clock.advance(3600)
    async with asyncio.timeout(60):
        while not is_right(ours):
            await asyncio.sleep(0.01)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_database_that_is_away_does_not_stop_the_time(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_clock, "ASKED_EVERY_S", 0.01)
    away = Database("postgresql://legato@/nowhere?host=/nonexistent", "auth")
    ours = DatabaseClock(away, clock)
    with pytest.raises(LegatoError):
        await ours.set()
    keeping = asyncio.create_task(ours.keep_right())
    await asyncio.sleep(0.1)
    assert not keeping.done()
    assert ours.now() == clock.now()
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    away.close()
