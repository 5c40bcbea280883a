"""Metering's audits of its own books."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from services.chassis.database.database import Database
from services.chassis.process import memory
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.metering.auditor import LOGGED_MOST, Auditor
from services.metering.batch import Writer
from services.metering.prices import Prices
from tests.services.metering.samples import ask_all, ask_each, grant, reserve, settle
from tests.support.fakes import FakeClock
from tests.support.waiting import until

INTERVAL_S = 0.01


@pytest.fixture
def registry() -> Registry:
    return Registry()


@asynccontextmanager
async def auditing(database: Database, clock: FakeClock, log: Log, registry: Registry) -> AsyncIterator[None]:
    running = asyncio.create_task(Auditor(database, INTERVAL_S, clock, log, registry).run())
    yield
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def test_books_are_audited_again_and_again(
    database: Database, writer: Writer, prices: Prices, clock: FakeClock, log: Log, registry: Registry
) -> None:
    """Two requests run; for one of them it is time to be swept."""
    await ask_each(writer, grant(1_000), reserve(1), settle(1, completion=3), reserve(2))
    await ask_each(Writer(database, prices, -1.0, log), reserve(3))
    async with auditing(database, clock, log, registry):
        assert math.isnan(value_of(registry, "legato_audit_violations"))
        for _ in range(2):
            clock.advance(60)
            await until(
                lambda: value_of(registry, "legato_audit_last_run_timestamp_seconds") == clock.now().timestamp()
            )
    assert value_of(registry, "legato_audit_violations") == 0
    assert value_of(registry, "legato_holds_live") == 2
    assert value_of(registry, "legato_holds_overdue") == 1


async def test_how_old_the_last_audit_is_can_be_told_before_the_first(
    database: Database, clock: FakeClock, log: Log, registry: Registry
) -> None:
    """Else a first audit that takes long would seem to be decades late."""
    Auditor(database, 7_200.0, clock, log, registry)
    assert value_of(registry, "legato_audit_last_run_timestamp_seconds") == clock.now().timestamp()
    assert value_of(registry, "legato_audit_interval_seconds") == 7_200.0


async def test_what_an_audit_took_is_given_back_before_it_is_told(
    database: Database, clock: FakeClock, log: Log, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the ledger passes through memory, which would stay with metering."""
    told_before: list[float] = []
    monkeypatch.setattr(memory, "give_back", lambda: told_before.append(value_of(registry, "legato_audit_violations")))
    async with auditing(database, clock, log, registry):
        await until(lambda: not math.isnan(value_of(registry, "legato_audit_violations")))
    assert math.isnan(told_before[0])


def value_of(registry: Registry, name: str) -> float:
    value = registry.value(name)
    assert value is not None
    return value


async def test_violations_are_counted_and_the_first_are_logged(
    database: Database, writer: Writer, clock: FakeClock, log: Log, log_text: Callable[[], str],
    registry: Registry,
) -> None:  # fmt: skip
    number = LOGGED_MOST + 2
    await ask_all(writer, *(grant(1_000, account=f"acct_{n:03}", grant_id=f"g{n}") for n in range(number)))
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("UPDATE accounts SET balance_nanos = balance_nanos + 1")
    async with auditing(database, clock, log, registry):
        await until(lambda: value_of(registry, "legato_audit_violations") == number)
    lines = [json.loads(line) for line in log_text().splitlines() if "audit.violation" in line]
    assert len(lines) >= LOGGED_MOST
    assert lines[0]["violation"] == "account acct_000: balance is +1 nanos off the sum of its ledger"
    assert lines[0]["violations"] == number
    assert not any(f"acct_{number - 1:03}" in line["violation"] for line in lines)


async def test_audit_that_fails_is_logged_and_tried_again(
    database: Database, clock: FakeClock, log: Log, log_text: Callable[[], str], registry: Registry
) -> None:
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("ALTER TABLE usage_hours RENAME TO elsewhere")
    started_at_s = clock.now().timestamp()
    async with auditing(database, clock, log, registry):
        clock.advance(60)
        await until(lambda: log_text().count("audit.failed") >= 2)
        assert value_of(registry, "legato_audit_last_run_timestamp_seconds") == started_at_s
        with database.transaction(writes=True) as connection:
            connection.exec_driver_sql("ALTER TABLE elsewhere RENAME TO usage_hours")
        await until(lambda: value_of(registry, "legato_audit_violations") == 0)
