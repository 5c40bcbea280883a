import asyncio
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.metering.audit import audit
from services.metering.batch import Writer
from services.metering.operations import Reserved, Settled
from services.metering.store.books import _COUNT_LIVE
from services.metering.store.sets import Row
from tests.services.metering.samples import KEY, ask, ask_all, ask_each, claimed, extend, grant, reserve, settle, void


def lose_updates_of(database: Database, table: str) -> None:
    """Makes a change of this table's rows have no effect, as if somebody else had been there first."""
    with database.transaction(writes=True) as connection:
        if database.is_sqlite:
            connection.exec_driver_sql(f"CREATE TRIGGER lose BEFORE UPDATE ON {table} BEGIN SELECT RAISE(IGNORE); END")
            return
        connection.exec_driver_sql(
            "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
        )
        connection.exec_driver_sql(f"CREATE TRIGGER lose BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION lose()")


@pytest.mark.parametrize("table", ["holds", "accounts"])
async def test_change_that_finds_its_row_moved_stops_the_whole_transaction(
    database: Database, writer: Writer, table: str
) -> None:
    await ask_each(writer, grant(1_000), reserve(1))
    lose_updates_of(database, table)
    with pytest.raises(LegatoError) as refusal:
        await ask(writer, settle(1, completion=3))
    assert refusal.value.reason is Reason.INTERNAL
    # Nothing of it was written: neither the charge, nor the counters, nor the hold.
    assert await audit(database) == []


async def test_key_that_somebody_else_took_stops_the_whole_transaction(database: Database, writer: Writer) -> None:
    await ask_each(writer, grant(1_000), reserve(1, claim=claimed()), void(1))
    lose_updates_of(database, "claims")
    with pytest.raises(LegatoError) as refusal:
        await ask(writer, reserve(2, claim=claimed()))
    assert refusal.value.reason is Reason.INTERNAL
    # Nothing of it was written: neither the hold, nor what the account holds.
    with pytest.raises(LegatoError) as refusal:
        await ask(writer, extend(2, 0))
    assert refusal.value.reason is Reason.REQUEST_RESOLVED
    assert await audit(database) == []


async def test_batch_waits_for_another_replica_and_then_reads_what_it_left(
    database: Database, database_url: str, writer: Writer, log_text: Callable[[], str]
) -> None:
    await ask_each(writer, grant(1_000), reserve(1))
    replica = Database(database_url, "metering")
    with replica.transaction(writes=True) as connection:
        # By hand, what an Extend does.
        connection.exec_driver_sql("UPDATE accounts SET held_nanos = 300")
        connection.exec_driver_sql("UPDATE holds SET amount_nanos = 300")
        settlement = ask(writer, settle(1, completion=3))
        await asyncio.sleep(0.1)
        assert not settlement.done()
    replica.close()
    assert (await settlement).charged_nanos == 30
    assert "batch.failed" not in log_text()
    assert await audit(database) == []


async def test_live_holds_are_counted_with_those_of_the_same_batch(writer: Writer) -> None:
    await ask_each(writer, grant(10_000), reserve(1, at_once=3), reserve(2, key="key_b"))
    await ask_each(writer, grant(10_000, account="acct_b", grant_id="grant-2"), reserve(3, account="acct_b"))
    answers = await ask_all(
        writer, reserve(4, at_once=3), reserve(5, at_once=3), reserve(6, at_once=3), settle(1), reserve(7, at_once=3)
    )
    assert [type(answer) for answer in answers] == [Reserved, Reserved, LegatoError, Settled, Reserved]
    assert answers[2].reason is Reason.TOO_MANY_AT_ONCE


async def test_nothing_is_counted_where_nothing_is_limited(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[set[str]] = []
    count = _COUNT_LIVE.run

    def note_and_count(connection: sa.Connection, key_ids: set[str]) -> list[Row]:
        counted.append(key_ids)
        return count(connection, key_ids)

    monkeypatch.setattr(_COUNT_LIVE, "run", note_and_count)
    await ask_each(writer, grant(10_000), reserve(1))
    assert counted == []
    await ask_all(writer, reserve(3, at_once=5), reserve(4, at_once=5), reserve(5, at_once=5, key="key_b"))
    assert counted == [{KEY, "key_b"}]


async def test_live_holds_are_found_by_their_key(database: Database, writer: Writer) -> None:
    """However many holds there are that live no longer."""
    await ask_each(writer, grant(10_000), reserve(1))
    with database.transaction(writes=True) as connection:
        explain = "EXPLAIN QUERY PLAN" if database.is_sqlite else "EXPLAIN"
        query = _COUNT_LIVE.sqlite if database.is_sqlite else _COUNT_LIVE.postgresql
        plan = connection.exec_driver_sql(f"{explain} {query}", ('["key_b"]',)).all()
    assert ("live_holds" if database.is_sqlite else "live_holds_by_key") in str(plan)
