import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from services.chassis.database.database import Database
from services.chassis.errors import internal_error
from services.chassis.telemetry.log import Log
from services.metering.audit import sweeper
from services.metering.audit.auditor import audit
from services.metering.audit.sweeper import Sweeper
from services.metering.credit.batch import Writer
from services.metering.credit.prices import Prices
from services.metering.credit.records import Operation, Sweep
from services.metering.credit.store.balances import read_balances
from services.rules.usage import Usage
from tests.services.metering.samples import (
    ACCOUNT,
    ask,
    ask_each,
    checkpoint,
    claimed,
    extend,
    grant,
    request_id,
    reserve,
    settle,
)


@pytest.fixture
def hasty(database: Database, prices: Prices, log: Log) -> Writer:
    """Its holds are past their time as soon as they are made."""
    return Writer(database, prices, -1.0, log)


async def balance_in(database: Database) -> tuple[int, int]:
    [account] = await database.read(read_balances, [ACCOUNT])
    return account.balance_nanos, account.held_nanos


async def test_hold_past_its_deadline_is_swept_at_its_checkpoint(
    database: Database, hasty: Writer, log: Log, log_text: Callable[[], str]
) -> None:
    await ask_each(hasty, grant(1_000), reserve(1), reserve(2), extend(1, 0, delivered=Usage(completion_tokens=4)))
    assert await Sweeper(database, hasty, 1.0, log).sweep() == 2
    assert await balance_in(database) == (960, 0)
    assert log_text().count("hold.swept") == 2
    assert await audit(database) == []


async def test_hold_is_swept_at_the_last_of_its_checkpoints(database: Database, hasty: Writer, log: Log) -> None:
    await ask_each(hasty, grant(1_000), reserve(1), *(checkpoint(1, prompt=2, completion=n) for n in (1, 7, 4)))
    assert await Sweeper(database, hasty, 1.0, log).sweep() == 1
    assert await balance_in(database) == (926, 0)
    assert await audit(database) == []


async def test_late_settlement_of_a_swept_hold_still_counts(database: Database, hasty: Writer, log: Log) -> None:
    await ask_each(hasty, grant(1_000), reserve(1), extend(1, 0, delivered=Usage(completion_tokens=4)))
    await Sweeper(database, hasty, 1.0, log).sweep()
    assert (await ask(hasty, settle(1, completion=6))).charged_nanos == 60
    assert await balance_in(database) == (940, 0)
    assert await audit(database) == []


async def test_hold_that_still_has_time_is_left_alone(database: Database, writer: Writer, log: Log) -> None:
    await ask_each(writer, grant(1_000), reserve(1))
    assert await Sweeper(database, writer, 1.0, log).sweep() == 0
    assert await balance_in(database) == (1_000, 100)


class Stubborn(Writer):
    """Some of its holds cannot be swept, whatever the reason."""

    stuck = frozenset({request_id(1), request_id(2)})

    def submit(
        self, operation: Operation[Any], reply: Callable[[Any], Any], refuse: Any = None
    ) -> "asyncio.Future[Any]":
        if not isinstance(operation, Sweep) or operation.request_id not in self.stuck:
            return super().submit(operation, reply, refuse)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_exception(internal_error())
        return future


async def test_holds_that_cannot_be_swept_keep_no_others_from_it(
    database: Database, prices: Prices, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "SWEEP_MOST", 2)
    writer = Stubborn(database, prices, -1.0, log)
    await ask_each(writer, grant(1_000), *(reserve(number) for number in (1, 2, 3, 4, 5)))
    assert await Sweeper(database, writer, 1.0, log).sweep() == 3
    assert await balance_in(database) == (1_000, 200)


async def test_claims_are_forgotten_after_a_day_in_small_portions(
    database: Database, writer: Writer, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "FORGET_MOST", 2)
    await ask_each(writer, grant(1_000), *(reserve(number, claim=claimed(f"key {number}")) for number in range(5)))
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(f"UPDATE claims SET claimed_at_us = 1 WHERE request_id <> '{request_id(0)}'")
    sweeping = asyncio.create_task(Sweeper(database, writer, 600.0, log).run())
    async with asyncio.timeout(60):
        while await claims_in(database) > 1:
            await asyncio.sleep(0.01)
    sweeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sweeping
    assert await Sweeper(database, writer, 1.0, log).forget() == 0
    assert await claims_in(database) == 1


async def claims_in(database: Database) -> int:
    count: int = await database.read(lambda rows: rows.exec_driver_sql("SELECT count(*) FROM claims").scalar_one())
    return count


async def test_two_sweepers_and_a_settlement_at_once_do_no_harm(
    database: Database, database_url: str, hasty: Writer, prices: Prices, log: Log
) -> None:
    other_database = Database(database_url, "metering")
    other = Writer(other_database, prices, -1.0, log)
    await ask(hasty, grant(1_000_000))
    for number in range(50):
        await ask(hasty, reserve(number))
    settlements = [ask(other, settle(number, completion=1)) for number in range(50)]
    swept, swept_too = await asyncio.gather(
        Sweeper(database, hasty, 1.0, log).sweep(), Sweeper(other_database, other, 1.0, log).sweep()
    )
    await asyncio.gather(*settlements)
    other_database.close()
    assert swept + swept_too <= 50
    assert await balance_in(database) == (1_000_000 - 50 * 10, 0)
    assert await audit(database) == []


async def test_sweeper_runs_until_it_is_cancelled(database: Database, hasty: Writer, log: Log) -> None:
    sweeping = asyncio.create_task(Sweeper(database, hasty, 0.01, log).run())
    await ask_each(hasty, grant(1_000), reserve(1))
    async with asyncio.timeout(60):
        while await balance_in(database) != (1_000, 0):
            await asyncio.sleep(0.01)
    sweeping.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await sweeping
