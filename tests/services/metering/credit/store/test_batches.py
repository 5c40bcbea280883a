import asyncio
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sa

from legato_protos.metering.v1 import metering_pb2 as pb
from legato_protos.metering.v1.metering_pb2_grpc import CreditAdminServiceStub
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.process import failpoints
from services.chassis.rpc.channel import open_sync_channel
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.holds import CLAIM_LIFE_US
from services.metering.credit.prices import Price, Prices
from services.metering.credit.records import Reserved, Settled
from services.metering.credit.store.batches import _COUNT_LIVE, forget_claims, reach, write_operations
from services.metering.credit.store.prices import adopt_prices, read_version
from services.metering.store.sets import Row
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.samples import (
    KEY,
    LIFE_S,
    PRICES,
    ask,
    ask_all,
    ask_each,
    claimed,
    extend,
    grant,
    request_id,
    reserve,
    settle,
    void,
)
from tests.support.forked.service_process import ServiceProcess
from tests.support.python_calls import count_calls


def lose_updates_of(database: Database, table: str) -> None:
    """Makes a change of this table's rows have no effect, as if another process had been there first."""
    with database.transaction(writes=True) as connection:
        if database.is_sqlite:
            connection.exec_driver_sql(f"CREATE TRIGGER lose BEFORE UPDATE ON {table} BEGIN SELECT RAISE(IGNORE); END")
            return
        connection.exec_driver_sql(
            "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$"
        )
        connection.exec_driver_sql(f"CREATE TRIGGER lose BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION lose()")


async def test_hold_with_the_settlement_of_an_earlier_chat_takes_few_calls(database: Database, writer: Writer) -> None:
    # The first of each kind also prepares statements.
    await ask_each(writer, grant(1_000), reserve(1), reserve(2), settle(1, completion=3))
    prices, life_us = writer.prices, round(LIFE_S * 1_000_000)

    def count(connection: sa.Connection) -> int:
        return count_calls(lambda: write_operations(connection, [settle(2, completion=3), reserve(3)], prices, life_us))

    # The driver of PostgreSQL is itself written in Python, for the most part.
    assert await database.write(count) <= (80 if database.is_sqlite else 600)
    assert await audit(database) == []


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


async def test_key_that_another_process_took_stops_the_whole_transaction(database: Database, writer: Writer) -> None:
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


WAIT_TIMEOUT_S = 60.0


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Path]:
    failpoints.watch(str(tmp_path))
    yield tmp_path
    failpoints.watch(None)


def test_batch_comes_once_to_the_place_of_each_kind_of_operation(orders: Path) -> None:
    for name in ("metering.reserve.read", "metering.settle.read", "metering.settle.written"):
        (orders / name).write_text("3")
    reach("read", [reserve(1), settle(1), reserve(2)])
    left = {order.name: order.read_text() for order in orders.iterdir()}
    assert left == {"metering.reserve.read": "2", "metering.settle.read": "2", "metering.settle.written": "3"}


@pytest.mark.parametrize(("step", "balances"), [("read", []), ("written", []), ("committed", [5])])
def test_only_what_was_committed_outlives_the_process(socket_folder: Path, step: str, balances: list[int]) -> None:
    orders = socket_folder / "failpoints"
    orders.mkdir()
    (orders / f"metering.grant.{step}").write_text("1")
    settings = {"LEGATO_DATA": str(socket_folder), failpoints.VARIABLE: str(orders)}
    metering = ServiceProcess("services.metering", settings)
    request = pb.GrantCreditsRequest(operation_id="grant-1", account_id="acct_a", amount_nanos=5)
    with open_sync_channel(f"unix:{socket_folder}/run/metering.sock") as channel, pytest.raises(grpc.RpcError):
        CreditAdminServiceStub(channel).GrantCredits(request, wait_for_ready=True, timeout=WAIT_TIMEOUT_S)
    assert metering.end()[0] == -signal.SIGKILL
    engine = sa.create_engine(f"sqlite:///{socket_folder}/metering.db")
    with engine.connect() as connection:
        assert list(connection.exec_driver_sql("SELECT balance_nanos FROM accounts").scalars()) == balances
    engine.dispose()


OLD = f"UPDATE claims SET claimed_at_us = claimed_at_us - {CLAIM_LIFE_US + 1_000}"


def claimants_in(database: Database) -> list[str]:
    with database.transaction(writes=False) as connection:
        return list(connection.exec_driver_sql("SELECT request_id FROM claims ORDER BY request_id").scalars())


async def test_claims_are_forgotten_when_their_day_is_over_the_oldest_first(database: Database, writer: Writer) -> None:
    await ask_each(writer, grant(1_000), *(reserve(number, claim=claimed(f"key {number}")) for number in range(4)))
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(f"{OLD} WHERE request_id <> '{request_id(3)}'")
        connection.exec_driver_sql(f"UPDATE claims SET claimed_at_us = 1 WHERE request_id = '{request_id(2)}'")
    assert await database.write(forget_claims, 1) == 1
    assert claimants_in(database) == [request_id(0), request_id(1), request_id(3)]
    assert await database.write(forget_claims, 10) == 2
    assert await database.write(forget_claims, 10) == 0
    assert claimants_in(database) == [request_id(3)]


async def test_claim_that_a_batch_is_taking_over_is_not_waited_for(postgres_url: str, log: Log) -> None:
    database, replica = Database(postgres_url, "metering"), Database(postgres_url, "metering")
    database.migrate(MIGRATIONS)
    prices = await database.write(adopt_prices, PRICES)
    writer = Writer(database, prices, LIFE_S, log)
    await ask_each(writer, grant(1_000), reserve(1, claim=claimed("a")), reserve(2, claim=claimed("b")))
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql(OLD)
    with replica.transaction(writes=True) as connection:
        connection.exec_driver_sql(f"UPDATE claims SET request_id = 'new' WHERE request_id = '{request_id(1)}'")
        assert await database.write(forget_claims, 10) == 1
    replica.close()
    assert claimants_in(database) == ["new"]
    database.close()


DEARER = {**PRICES, "forte": Price(4_000_000, 4_000_000, 20_000_000)}


async def test_prices_that_did_not_change_keep_their_version(database: Database) -> None:
    for _ in range(2):
        prices = await database.write(adopt_prices, PRICES)
        assert prices.current_version == 1


async def test_changed_prices_become_a_new_version_and_the_old_one_stays(database: Database) -> None:
    await database.write(adopt_prices, PRICES)
    prices = await database.write(adopt_prices, DEARER)
    assert prices.current_version == 2
    assert prices.of_version(2, "forte") == DEARER["forte"]
    assert await database.read(read_version, 1) == PRICES


async def test_request_is_charged_by_the_version_it_began_with_also_after_a_restart(
    database: Database, writer: Writer, log: Log
) -> None:
    await ask(writer, grant(1_000))
    await ask(writer, reserve(1))
    # Started anew, the writer knows no version but the newest.
    prices: Prices = await database.write(adopt_prices, DEARER)
    restarted = Writer(database, prices, LIFE_S, log)
    assert (await ask(restarted, settle(1, completion=3))).charged_nanos == 30
    await ask(restarted, reserve(2))
    assert (await ask(restarted, settle(2, completion=3))).charged_nanos == 60
    assert await audit(database) == []
