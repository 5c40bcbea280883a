"""Incidents that cost others money in the database: each test brings about what happened there, and is named after the
report of it. Those that take the whole service are in tests/e2e/billing/test_incidents.py.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.prices import Prices
from services.metering.credit.records import AccountBalance, Operation, Settled
from services.metering.credit.store.balances import read_balances
from tests.services.metering.samples import ACCOUNT, LIFE_S, ask, ask_all, grant, reserve, settle

ACCOUNTS = [f"acct_{letter}" for letter in "abcdef"]
ROUNDS = 20


@pytest.fixture
async def other_writer(database_url: str, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    """Another replica's writer, same database."""
    database = Database(database_url, "metering")
    writer = Writer(database, prices, LIFE_S, log)
    yield writer
    await writer.close()
    database.close()


async def balances_of(database: Database, account_ids: list[str]) -> list[int]:
    accounts = await database.read(read_balances, account_ids)
    return [account.balance_nanos for account in accounts]


async def test_batches_in_any_order_neither_deadlock_nor_drop_what_they_add_litellm_6895(
    database: Database, writer: Writer, other_writer: Writer, log_text: Callable[[], str]
) -> None:
    """Elsewhere, the batch that lost was dropped in silence."""
    await ask_all(writer, *(grant(100_000, account=account, grant_id=account) for account in ACCOUNTS))
    dice = random.Random(6895)
    for number in range(ROUNDS):
        await asyncio.gather(
            *(
                ask_all(replica, *shuffled_requests(dice, first_request=1_000 * number + 100 * which))
                for which, replica in enumerate((writer, other_writer))
            )
        )
    assert await balances_of(database, ACCOUNTS) == [100_000 - 2 * ROUNDS * 30] * len(ACCOUNTS)
    assert "batch.failed" not in log_text()
    assert await audit(database) == []


def shuffled_requests(dice: random.Random, first_request: int) -> list[Operation[Any]]:
    """One request of every account, in an order of its own: reserved, and settled at 30."""
    requests = list(enumerate(dice.sample(ACCOUNTS, len(ACCOUNTS)), first_request))
    reserves = [reserve(number, account=account) for number, account in requests]
    return [*reserves, *(settle(number, completion=3, account=account) for number, account in requests)]


async def test_callers_who_leave_leak_no_connection_sqlalchemy_12077(database: Database, writer: Writer) -> None:
    """There, it went on until no connection was left."""
    await ask(writer, grant(10**9))
    dice = random.Random(12077)

    async def write(number: int) -> None:
        await ask(writer, reserve(number))

    async def look(number: int) -> None:
        await balances_of(database, [ACCOUNT])

    for number in range(200):
        caller = asyncio.create_task(dice.choice((write, look))(number))
        await asyncio.sleep(dice.choice((0, 0, 0.001)))
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
    await writer.close()
    pool = database.engine.pool
    assert isinstance(pool, sa.QueuePool)
    async with asyncio.timeout(20):
        # But for the writer's own.
        while pool.checkedout() > 1:
            await asyncio.sleep(0.01)
    assert await balances_of(database, [ACCOUNT]) == [10**9]
    assert await audit(database) == []


async def test_what_could_not_be_written_is_not_forgotten_as_if_it_were_litellm_34820(
    database: Database, writer: Writer
) -> None:
    """There, rows were taken out of the queue before they were written; elsewhere a failure to book was swallowed, and
    the cost booked nowhere."""
    await ask_all(writer, grant(1_000), reserve(1), reserve(2))
    with missing_ledger(database):
        outcomes = await ask_all(writer, settle(1, completion=3), settle(2, completion=4))
        assert all(isinstance(outcome, LegatoError) for outcome in outcomes)
    # The caller was told so, and asks again.
    outcomes = await ask_all(writer, settle(1, completion=3), settle(2, completion=4))
    assert outcomes == [Settled(30, 0), Settled(40, 0)]
    assert await balances_of(database, [ACCOUNT]) == [930]
    assert await audit(database) == []


@contextmanager
def missing_ledger(database: Database) -> Iterator[None]:
    rename_table(database, "ledger", "elsewhere")
    yield
    rename_table(database, "elsewhere", "ledger")


def rename_table(database: Database, before: str, after: str) -> None:
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(f"ALTER TABLE {before} RENAME TO {after}")


async def test_settlement_that_every_replica_repeats_counts_once_litellm_28247(
    database: Database, writer: Writer, other_writer: Writer
) -> None:
    """There, each of N replicas added what had been spent to the counter that they share."""
    await ask_all(writer, grant(1_000), reserve(1))
    copies = [settle(1, completion=3) for _ in range(20)]
    mine, theirs = await asyncio.gather(ask_all(writer, *copies), ask_all(other_writer, *copies))
    assert mine == theirs == [Settled(30, 0)] * 20
    assert await balances_of(database, [ACCOUNT]) == [970]
    assert await audit(database) == []


async def test_credit_that_two_replicas_grant_at_once_is_granted_once_gitpod_14973(
    database: Database, writer: Writer, other_writer: Writer
) -> None:
    for number, account in enumerate(ACCOUNTS):
        operation = grant(500, account=account, grant_id=f"grant-{number}")
        mine, theirs = await asyncio.gather(ask(writer, operation), ask(other_writer, operation))
        assert mine == theirs == AccountBalance(account, 500, 0)
    assert await balances_of(database, ACCOUNTS) == [500] * len(ACCOUNTS)
    assert await audit(database) == []
