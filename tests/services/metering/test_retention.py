"""Months that are closed, archived and pruned: balances, statements and the audit stay right."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.metering.auditor import audit, find_violations_of
from services.metering.batch import Writer
from services.metering.closed_months import audit_months, list_closings
from services.metering.retention import Retention, RetentionPolicy
from services.metering.store.tables import closings, holds, ledger, usage_hours
from tests.services.metering.samples import ACCOUNT, adjust, ask, ask_each, grant, request_id, reserve, settle, sweep, void
from tests.support.database_time import DatabaseTime

OTHER = "acct_bbbbbbbbbbbbbbbb"
KEEPS_ALL = RetentionPolicy(holds_days=0)
PRUNES = RetentionPolicy(holds_days=2, ledger_months=1, usage_months=1)


@pytest.fixture
def database_time(monkeypatch: pytest.MonkeyPatch) -> DatabaseTime:
    return DatabaseTime(monkeypatch)


def retention(database: Database, log: Log, policy: RetentionPolicy = KEEPS_ALL) -> Retention:
    return Retention(database, policy, 3600.0, log, pause_s=0)


def count(database: Database, table: sa.Table) -> int:
    with database.transaction(writes=False) as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


async def chats(writer: Writer, first: int) -> None:
    """A grant, two chats that are charged, one that is not, and one of another account."""
    await ask_each(
        writer, grant(1_000, grant_id=f"g{first}"), grant(500, account=OTHER, grant_id=f"o{first}"),
        reserve(first), settle(first, prompt=1, completion=3), reserve(first + 1), settle(first + 1, completion=5),
        reserve(first + 2), void(first + 2), reserve(first + 3, account=OTHER),
        settle(first + 3, completion=1, account=OTHER),
    )  # fmt: skip


async def balance(writer: Writer, account: str = ACCOUNT) -> int:
    """Asks by a grant that was booked before."""
    return (await ask(writer, grant(1_000, grant_id="g1"))).balance_nanos


async def test_a_month_is_closed_once_it_is_over_and_the_audit_goes_on_from_there(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, log_text: Callable[[], str]
) -> None:
    closer = retention(database, log)
    await chats(writer, 1)
    assert await closer.run_pass()
    assert closer.closed_months == 0
    for number in (2, 3):
        database_time.pass_days(31)
        await chats(writer, 10 * number)
        assert await audit(database) == []
    database_time.pass_days(40)
    await closer.run_pass()
    closed = await list_closings(database)
    assert [closing.entries for closing in closed.closings if closing.entries] == [5, 5, 5]
    assert closed.closings[-1].balance_nanos == 3 * (1_500 - 32 - 50 - 10)
    assert log_text().count("month.closed") == len(closed.closings)
    assert await audit(database) == []
    assert await audit_months(database, None) == []
    await chats(writer, 40)
    assert await audit(database) == []
    with database.transaction(writes=False) as connection:
        assert find_violations_of(connection, ACCOUNT) == []
