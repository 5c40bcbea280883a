import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit import batch
from services.metering.credit.batch import Writer
from services.metering.credit.prices import Prices
from services.metering.credit.records import AccountBalance, Operation, Reserved, Settled
from services.metering.credit.store.balances import read_balances
from services.rules.usage import Usage
from tests.services.metering.samples import (
    ACCOUNT,
    LIFE_S,
    adjust,
    ask,
    ask_all,
    ask_each,
    checkpoint,
    claimed,
    extend,
    grant,
    reserve,
    settle,
    void,
)


async def account_in(database: Database, account_id: str = ACCOUNT) -> AccountBalance:
    [account] = await database.read(read_balances, [account_id])
    return account


async def test_request_is_reserved_extended_and_settled(database: Database, writer: Writer) -> None:
    await ask(writer, grant(1_000))
    assert (await ask(writer, reserve(1, prompt=5, output=10))).held_nanos == 110
    assert (await ask(writer, extend(1, 300, delivered=Usage(5, 0, 7)))).extended
    assert await account_in(database) == AccountBalance(ACCOUNT, 1_000, 300)
    assert await ask(writer, settle(1, prompt=5, completion=12)) == Settled(130, 0)
    assert await account_in(database) == AccountBalance(ACCOUNT, 870, 0)
    assert await audit(database) == []


async def test_answer_is_what_the_caller_makes_of_it(writer: Writer) -> None:
    assert await writer.submit(grant(1_000), lambda account: account.balance_nanos) == 1_000


async def test_operations_of_one_batch_see_each_other(database: Database, writer: Writer) -> None:
    outcomes = await ask_all(writer, grant(1_000), reserve(1), settle(1, completion=3), reserve(1), void(2), reserve(2))
    assert outcomes[0] == AccountBalance(ACCOUNT, 1_000, 0)
    assert outcomes[2] == Settled(30, 0)
    assert [outcomes[3].reason, outcomes[5].reason] == [Reason.REQUEST_RESOLVED] * 2
    assert await account_in(database) == AccountBalance(ACCOUNT, 970, 0)
    assert await audit(database) == []


async def test_exactly_as_many_reserves_are_admitted_as_the_balance_covers(database: Database, writer: Writer) -> None:
    await ask(writer, grant(17 * 100 + 9))
    outcomes = await ask_all(writer, *(reserve(number, output=10) for number in range(500)))
    assert sum(isinstance(outcome, Reserved) for outcome in outcomes) == 17
    assert {outcome.reason for outcome in outcomes if isinstance(outcome, LegatoError)} == {Reason.CREDITS_HELD}
    assert (await account_in(database)).held_nanos == 1_700


async def test_two_writers_on_one_database_admit_no_more_than_one(
    database: Database, database_url: str, prices: Prices, writer: Writer, log: Log, log_text: Callable[[], str]
) -> None:
    other_database = Database(database_url, "metering")
    other = Writer(other_database, prices, LIFE_S, log)
    await ask_all(writer, *(grant(1_000, account=f"acct_{n}", grant_id=f"g{n}") for n in range(3)))
    # Both get every request, as if each message had been sent twice.
    operations = [reserve(n, output=10, account=f"acct_{n % 3}") for n in range(120)]
    mine, theirs = await asyncio.gather(ask_all(writer, *operations), ask_all(other, *reversed(operations)))
    await other.close()
    other_database.close()
    assert [type(outcome) for outcome in mine] == [type(outcome) for outcome in reversed(theirs)]
    assert sum(isinstance(outcome, Reserved) for outcome in mine) == 30
    # They waited for each other's locks; neither had to find out that rows had moved under it.
    assert "batch.failed" not in log_text()
    assert await audit(database) == []


async def test_repeated_settle_charges_once(database: Database, writer: Writer) -> None:
    await ask_all(writer, grant(1_000), reserve(1))
    outcomes = await ask_all(writer, *(settle(1, completion=3) for _ in range(20)))
    assert [*outcomes, await ask(writer, settle(1, completion=3))] == [Settled(30, 0)] * 21
    assert await account_in(database) == AccountBalance(ACCOUNT, 970, 0)


async def test_failing_operation_does_not_fail_its_batch(
    database: Database, writer: Writer, log_text: Callable[[], str]
) -> None:
    await ask_all(writer, grant(1_000), reserve(1), reserve(2))
    # What this lost does not fit the database's integers.
    outcomes = await ask_all(writer, settle(1, completion=3), settle(2, completion=10**18), reserve(3), void(4))
    assert outcomes[0] == Settled(30, 0)
    assert outcomes[1].reason is Reason.INTERNAL
    assert isinstance(outcomes[2], Reserved)
    assert "operation.failed" in log_text()
    assert await account_in(database) == AccountBalance(ACCOUNT, 970, 200)
    assert await audit(database) == []


async def test_settlement_without_a_hold_is_logged_as_an_alarm(writer: Writer, log_text: Callable[[], str]) -> None:
    [outcome] = await ask_all(writer, settle(1, completion=3))
    assert outcome.reason is Reason.NOT_FOUND
    assert "settlement.unmatched" in log_text()


async def test_caller_who_leaves_does_not_undo_the_operation(database: Database, writer: Writer) -> None:
    await ask(writer, grant(1_000))
    caller = asyncio.ensure_future(ask(writer, reserve(1)))
    await asyncio.sleep(0)
    caller.cancel()
    await writer.close()
    assert (await account_in(database)).held_nanos == 100


async def test_close_waits_for_everything_that_was_submitted(database: Database, writer: Writer) -> None:
    futures = [ask(writer, grant(1, grant_id=f"g{number}")) for number in range(2 * batch.BATCH_MOST + 1)]
    await writer.close()
    assert all(future.done() for future in futures)
    assert (await account_in(database)).balance_nanos == len(futures)


async def test_database_that_is_away_is_said_to_be_away(
    database: Database, database_url: str, writer: Writer, log_text: Callable[[], str]
) -> None:
    await ask(writer, grant(1))
    with away(database, database_url):
        outcomes = await ask_all(writer, *(grant(1, grant_id=f"g{n}") for n in range(3 * batch.BATCH_MOST)))
    assert {(outcome.reason, outcome.retry_after_s) for outcome in outcomes} == {(Reason.UNAVAILABLE, 1)}
    # The first batch, then the first of it alone: all others would only wait for the same.
    assert log_text().count("batch.failed") == 1
    assert (await ask(writer, grant(1, grant_id="g0"))).balance_nanos == 2


@contextmanager
def away(database: Database, database_url: str) -> Iterator[None]:
    if database.is_sqlite:
        file = Path(database_url.removeprefix("sqlite:///"))
        database._drop_write_connection()
        database.engine.dispose()
        file.rename(file.with_suffix(".moved"))
        file.mkdir()
        yield
        file.rmdir()
        file.with_suffix(".moved").rename(file)
        return
    name = sa.make_url(database_url).database
    elsewhere = database_url.replace(f"/{name}?", "/postgres?")
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        yield
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())


async def test_overload_is_refused_at_once(writer: Writer) -> None:
    futures = [ask(writer, void(0)) for _ in range(batch.WAITING_MOST)]
    with pytest.raises(LegatoError) as refusal:
        await ask(writer, void(0))
    assert refusal.value.reason is Reason.UNAVAILABLE
    await asyncio.gather(*futures)


async def test_books_agree_after_a_long_story(database: Database, writer: Writer) -> None:
    dice = random.Random(20261115)
    await ask(writer, grant(5_000))
    for _ in range(20):
        await ask_all(writer, *(random_operation(dice) for _ in range(dice.randint(1, 40))))
    assert await audit(database) == []


def random_operation(dice: random.Random) -> Operation[Any]:
    number, tokens = dice.randint(1, 60), dice.randint(0, 30)
    choices: list[Operation[Any]] = [
        reserve(number, prompt=tokens, output=10, claim=claimed(f"key {number % 20}") if tokens % 2 else None),
        extend(number, 10 * tokens, delivered=Usage(tokens, 0, 1)),
        settle(number, prompt=tokens, cached=tokens // 2, completion=dice.randint(0, 30)),
        checkpoint(number, prompt=tokens, completion=2),
        void(number),
        adjust(dice.randint(-500, 500), adjustment_id=f"adjustment-{number}"),
    ]
    return dice.choices(choices, weights=[5, 2, 3, 2, 1, 1])[0]


@pytest.fixture
async def patient(database: Database, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    """A writer that waits an hour."""
    writer = Writer(database, prices, LIFE_S, log, settlement_delay_s=3600.0)
    yield writer
    await writer.close()


async def test_settlement_waits_for_an_operation_that_is_waited_for(database: Database, patient: Writer) -> None:
    await ask_all(patient, grant(1_000), reserve(1), reserve(2))
    telling: list[asyncio.Future[Any]] = [
        ask(patient, settle(1, completion=3)),
        ask(patient, void(2)),
        ask(patient, checkpoint(3, completion=1)),
    ]
    await asyncio.sleep(0.05)
    assert not any(told.done() for told in telling)
    assert (await account_in(database)).balance_nanos == 1_000
    reserved = await ask(patient, reserve(4))
    # It found what they left, in the same batch.
    assert all(told.done() for told in telling)
    assert reserved.free_nanos == 970 - reserved.held_nanos
    assert patient.waiting == 0


async def test_settlement_that_came_while_a_batch_was_written_waits_too(patient: Writer) -> None:
    await ask_all(patient, grant(1_000), reserve(1))
    reserving = ask(patient, reserve(2))
    await asyncio.sleep(0)
    settling = ask(patient, settle(1))
    await reserving
    await asyncio.sleep(0.05)
    assert not settling.done()
    await ask(patient, extend(2, 0))
    assert settling.done()


async def test_settlement_that_finds_no_company_is_written_all_the_same(
    database: Database, prices: Prices, log: Log
) -> None:
    writer = Writer(database, prices, LIFE_S, log, settlement_delay_s=0.01)
    await ask_all(writer, grant(1_000), reserve(1))
    assert await ask(writer, settle(1, completion=3)) == Settled(30, 0)


@pytest.fixture
async def gathering(database: Database, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    """A writer that waits an hour for company that is likely, and hardly for what is not."""
    writer = Writer(database, prices, LIFE_S, log, settlement_delay_s=0.01, shared_delay_s=3600.0)
    yield writer
    await writer.close()


async def test_settlement_waits_longer_while_chats_begin_often(database: Database, gathering: Writer) -> None:
    await ask_all(gathering, grant(1_000), reserve(1), reserve(2))
    settling = ask(gathering, settle(1, completion=3))
    await asyncio.sleep(0.1)
    assert not settling.done()
    reserved = await ask(gathering, reserve(3))
    assert settling.done()
    assert reserved.free_nanos == 970 - 100 - reserved.held_nanos


async def test_settlement_does_not_wait_for_chats_that_begin_seldom(
    gathering: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "_usual_pause_s", 1e9)
    await ask_all(gathering, grant(1_000), reserve(1))
    async with asyncio.timeout(30):
        assert await ask(gathering, settle(1, completion=3)) == Settled(30, 0)


async def test_client_whose_chat_failed_does_not_wait_for_other_chats(gathering: Writer) -> None:
    await ask_all(gathering, grant(1_000), reserve(1), reserve(2))
    settling = ask(gathering, settle(1, completion=3))
    async with asyncio.timeout(30):
        await ask(gathering, void(2))
    assert settling.done()


async def test_neither_does_it_if_it_failed_while_a_batch_was_written(gathering: Writer) -> None:
    await ask_all(gathering, grant(1_000), reserve(1), reserve(2))
    reserving = ask(gathering, reserve(3))
    await asyncio.sleep(0)
    settling, voiding = ask(gathering, settle(1)), ask(gathering, void(2))
    async with asyncio.timeout(30):
        await asyncio.gather(reserving, settling, voiding)


async def test_writer_that_closes_leaves_nothing_waiting(database: Database, patient: Writer) -> None:
    await ask_all(patient, grant(1_000), reserve(1))
    settling = ask(patient, settle(1, completion=3))
    async with asyncio.timeout(30):
        await patient.close()
    assert settling.done()
    assert (await account_in(database)).balance_nanos == 970


async def test_lone_operation_never_waits(database: Database, prices: Prices, log: Log) -> None:
    writer = Writer(database, prices, LIFE_S, log, pace_s=3600.0)
    async with asyncio.timeout(30):
        await ask_each(writer, grant(1_000), reserve(1), reserve(2), settle(1), settle(2), reserve(3))
        await ask_all(writer, reserve(4), settle(3))
        await ask(writer, reserve(5))


async def test_after_a_batch_that_several_waited_for_the_next_one_gathers(
    database: Database, prices: Prices, log: Log
) -> None:
    writer = Writer(database, prices, LIFE_S, log, pace_s=0.2)
    await ask(writer, grant(1_000))
    await ask_all(writer, reserve(1), reserve(2))
    first = ask(writer, reserve(3))
    await asyncio.sleep(0.02)
    await asyncio.gather(first, ask(writer, reserve(4)))
    with database.transaction(writes=False) as connection:
        found = connection.exec_driver_sql("SELECT reserved_at_us FROM holds ORDER BY request_id").scalars().all()
    assert found[2] == found[3]
