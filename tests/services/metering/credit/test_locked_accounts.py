"""Rows that another session keeps locked, in PostgreSQL: SQLite has one lock for all of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit import batch
from services.metering.credit.batch import Writer
from services.metering.credit.locked_accounts import LockedAccounts
from services.metering.credit.prices import Prices
from services.metering.credit.records import AccountBalance, Operation, Reserved, Settled
from services.metering.credit.store.balances import read_balances
from tests.services.metering.samples import (
    LIFE_S,
    ask,
    ask_all,
    checkpoint,
    grant,
    request_id,
    reserve,
    settle,
    sweep,
)

STUCK, OTHER, THIRD = "acct_stuck", "acct_other", "acct_third"
DEADLINE_S = 60


@pytest.fixture
def database_kind() -> str:
    return "postgresql"


@pytest.fixture
async def patient(database: Database, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    """A writer that waits an hour for a lock."""
    writer = Writer(database, prices, LIFE_S, log, lock_wait_s=3600.0)
    await fill(writer)
    yield writer
    async with asyncio.timeout(DEADLINE_S):
        await writer.close()


@pytest.fixture
async def hasty(database: Database, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    writer = Writer(database, prices, LIFE_S, log, lock_wait_s=0.1)
    await fill(writer)
    yield writer
    await writer.close()


async def fill(writer: Writer) -> None:
    await ask_all(writer, *(grant(1_000, account=name, grant_id=name) for name in (STUCK, OTHER, THIRD)))


@contextmanager
def locked(url: str, table: str = "accounts", account_id: str = STUCK) -> Iterator[None]:
    """Locks as a person who began a transaction and went to lunch."""
    with psycopg.connect(url) as stranger:
        stranger.execute(f"SELECT * FROM metering.{table} WHERE account_id = %s FOR UPDATE".encode(), [account_id])
        yield
        stranger.rollback()


async def balance(database: Database, account_id: str) -> AccountBalance:
    [account] = await database.read(read_balances, [account_id])
    return account


async def test_account_that_a_stranger_has_locked_keeps_no_other_waiting(
    database: Database, database_url: str, patient: Writer
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with locked(database_url):
            waiting = ask(patient, reserve(1, account=STUCK))
            assert (await ask(patient, reserve(2, account=OTHER))).held_nanos == 100
            assert (await ask(patient, reserve(3, account=THIRD))).held_nanos == 100
            assert not waiting.done()
            assert patient.locked_accounts == 1
        assert (await waiting).held_nanos == 100
    assert patient.locked_accounts == 0
    assert await audit(database) == []


async def test_those_who_came_with_it_are_written_in_one_transaction(
    database: Database, database_url: str, patient: Writer
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with locked(database_url):
            futures = [ask(patient, reserve(number, account=name)) for number, name in enumerate((STUCK, OTHER, THIRD))]
            await asyncio.gather(*futures[1:])
            with database.transaction(writes=False) as connection:
                found = connection.exec_driver_sql("SELECT reserved_at_us FROM holds").scalars().all()
            assert len(found) == 2
            assert len(set(found)) == 1
        await futures[0]


async def test_account_that_is_known_to_be_locked_is_waited_for_no_more(
    database_url: str, patient: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[bool] = []
    commit = patient._commit

    def counted(operations: object, *, skips_locked: bool = False) -> object:
        names = {operation.account_id for operation in operations}  # type: ignore[attr-defined]
        if STUCK in names:
            commits.append(skips_locked)
        return commit(operations, skips_locked=skips_locked)  # type: ignore[arg-type]

    monkeypatch.setattr(patient, "_commit", counted)
    async with asyncio.timeout(DEADLINE_S):
        with locked(database_url):
            waiting = [ask(patient, reserve(1, account=STUCK))]
            for number in range(2, 12):
                waiting.append(ask(patient, reserve(100 + number, account=STUCK)))
                await ask(patient, reserve(number, account=OTHER, output=1))
            while len(commits) < 20:
                await asyncio.sleep(0.01)
        await asyncio.gather(*waiting, return_exceptions=True)
    # The first time; then never again until it was free.
    assert commits[:20] == [False] + [True] * 19


async def test_who_waits_for_it_is_told_to_come_again(
    database: Database, database_url: str, hasty: Writer, log_text: Callable[[], str]
) -> None:
    with locked(database_url):
        for _ in range(2):
            async with asyncio.timeout(DEADLINE_S):
                [refusal] = await ask_all(hasty, reserve(1, account=STUCK))
            assert isinstance(refusal, LegatoError)
            assert (refusal.reason, refusal.retry_after_s) == (Reason.UNAVAILABLE, 1)
    assert await balance(database, STUCK) == AccountBalance(STUCK, 1_000, 0)
    assert (await ask(hasty, reserve(1, account=STUCK))).held_nanos == 100
    assert await balance(database, STUCK) == AccountBalance(STUCK, 1_000, 100)
    assert log_text().count("account.locked") == log_text().count("account.unlocked") == 1
    assert await audit(database) == []


async def test_what_waited_counts_once_and_in_its_order(database: Database, database_url: str, patient: Writer) -> None:
    await ask(patient, reserve(1, account=STUCK))
    async with asyncio.timeout(DEADLINE_S):
        with locked(database_url):
            operations: list[Operation[Any]] = [
                *(settle(1, completion=3, account=STUCK) for _ in range(3)),
                reserve(2, account=STUCK),
                settle(2, completion=4, account=STUCK),
                *(grant(5, account=STUCK, grant_id="once") for _ in range(2)),
            ]
            futures = [ask(patient, operation) for operation in operations]
            await ask(patient, reserve(3, account=OTHER))
            # Some of them came before anybody knew, and one when it was known.
            futures.append(ask(patient, settle(2, completion=4, account=STUCK)))
        outcomes = await asyncio.gather(*futures)
    assert outcomes[:3] == [Settled(30, 0)] * 3
    assert isinstance(outcomes[3], Reserved)
    assert outcomes[4] == outcomes[7] == Settled(40, 0)
    assert outcomes[6] == AccountBalance(STUCK, 1_000 - 70 + 5, 0)
    assert await balance(database, STUCK) == AccountBalance(STUCK, 1_000 - 70 + 5, 0)
    assert await audit(database) == []


@pytest.mark.parametrize("table", ["holds", "usage_hours"])
async def test_other_row_of_an_account_that_is_locked_keeps_no_other_waiting(
    database: Database, database_url: str, patient: Writer, table: str
) -> None:
    settled = settle(1, completion=1, account=STUCK)
    await ask_all(patient, reserve(1, account=STUCK), settled, reserve(2, account=STUCK))
    async with asyncio.timeout(DEADLINE_S):
        with locked(database_url, table):
            settling = ask(patient, settle(2, completion=1, account=STUCK))
            assert (await ask(patient, reserve(3, account=OTHER))).held_nanos == 100
            assert not settling.done()
        assert await settling == Settled(10, 0)
    assert await balance(database, STUCK) == AccountBalance(STUCK, 980, 0)
    assert await audit(database) == []


async def test_what_comes_again_by_itself_does_not_wait(database_url: str, patient: Writer) -> None:
    await ask(patient, reserve(1, account=STUCK))
    async with asyncio.timeout(DEADLINE_S):
        with locked(database_url):
            told = await ask_all(patient, checkpoint(1, completion=1, account=STUCK), sweep(1, account=STUCK))
            assert [refusal.reason for refusal in told] == [Reason.UNAVAILABLE] * 2
        # Nothing else has found out meanwhile that it is free again.
        await ask(patient, checkpoint(1, completion=1, account=STUCK))


async def test_new_account_is_not_taken_for_a_locked_one(database_url: str, patient: Writer) -> None:
    async with asyncio.timeout(DEADLINE_S):
        with locked(database_url):
            waiting = ask(patient, reserve(1, account=STUCK))
            assert await ask(patient, grant(7, account="acct_new", grant_id="new")) == AccountBalance("acct_new", 7, 0)
        await waiting


async def test_writer_that_closes_does_not_wait_for_a_stranger(database_url: str, patient: Writer) -> None:
    with locked(database_url):
        waiting = ask(patient, reserve(1, account=STUCK))
        await ask(patient, reserve(2, account=OTHER))
        async with asyncio.timeout(DEADLINE_S):
            await patient.close()
        assert waiting.done()
        with pytest.raises(LegatoError) as refusal:
            waiting.result()
        assert refusal.value.reason is Reason.UNAVAILABLE


async def test_crowd_that_waits_for_a_locked_account_takes_no_room_of_others(
    database_url: str, patient: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "WAITING_MOST", 5)
    async with asyncio.timeout(DEADLINE_S):
        with locked(database_url):
            waiting = [ask(patient, reserve(1, account=STUCK))]
            await ask(patient, reserve(2, account=OTHER, output=1))
            waiting += [ask(patient, reserve(number, account=STUCK, output=1)) for number in range(10, 20)]
            assert sum(future.done() for future in waiting) == 6
            for number in range(20, 30):
                await ask(patient, reserve(number, account=OTHER, output=1))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(isinstance(outcome, Reserved) for outcome in outcomes) == 5


async def test_request_of_a_locked_account_is_not_in_the_books(
    database: Database, database_url: str, hasty: Writer
) -> None:
    with locked(database_url):
        await ask_all(hasty, reserve(1, account=STUCK))
    with database.transaction(writes=False) as connection:
        found = connection.exec_driver_sql("SELECT request_id FROM holds").scalars().all()
    assert request_id(1) not in found


def test_accounts_take_turns_when_they_are_tried() -> None:
    accounts: LockedAccounts[str] = LockedAccounts(wait_s=10.0)
    for name in ("a", "b", "c"):
        accounts.add(name, f"{name}1", now_s=0.0)
        accounts.add(name, f"{name}2", now_s=1.0)
    assert accounts.first_of_each(2) == ["a1", "b1"]
    accounts.keep("a")
    assert accounts.first_of_each(2) == ["b1", "c1"]
    assert accounts.free("b") == ["b1", "b2"]
    assert (accounts.waiting, accounts.count) == (4, 2)
    assert sorted(accounts.take_late(10.0)) == ["a1", "c1"]
    assert accounts.first_of_each(2) == ["c2", "a2"]


def test_account_for_which_nothing_waits_is_remembered() -> None:
    accounts: LockedAccounts[str] = LockedAccounts(wait_s=10.0)
    accounts.add("a", "a1", now_s=0.0, waits=False)
    assert accounts.take_late(0.0) == ["a1"]
    assert "a" in accounts.queues
    assert (accounts.waiting, accounts.count) == (0, 0)
    assert accounts.free("a") == []
