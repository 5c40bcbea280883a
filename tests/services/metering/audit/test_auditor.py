"""Metering's audits of its own books."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.process import memory
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.metering.audit.auditor import LOGGED_MOST, Auditor, audit, find_violations_of
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.credits import LARGEST_BALANCE_NANOS
from services.metering.credit.prices import LARGEST_PRICE_NANOS, Price, Prices
from services.metering.credit.store.prices import adopt_prices
from services.metering.credit.store.tables import holds, ledger
from services.metering.months.store.partitions import list_partitions
from services.rules.usage import COLUMNS, Usage
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.samples import (
    ACCOUNT,
    KEY,
    LIFE_S,
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
from tests.support.fakes import FakeClock
from tests.support.servers.migrated import MigratedPostgres
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


async def test_one_replica_audits_and_another_takes_over_when_it_has_ended(
    migrated_postgres: MigratedPostgres, clock: FakeClock, log: Log
) -> None:
    first, second = Registry(), Registry()

    def last_run_s(registry: Registry) -> float:
        return value_of(registry, "legato_audit_last_run_timestamp_seconds")

    def violations(registry: Registry) -> float:
        return value_of(registry, "legato_audit_violations")

    with migrated_postgres.lend("metering", MIGRATIONS) as url:
        databases = Database(url, "metering"), Database(url, "metering")
        async with AsyncExitStack() as replicas:
            stopping = await replicas.enter_async_context(AsyncExitStack())
            await stopping.enter_async_context(auditing(databases[0], clock, log, first))
            await until(lambda: violations(first) == 0)
            await replicas.enter_async_context(auditing(databases[1], clock, log, second))
            await until(lambda: math.isnan(last_run_s(second)))
            for _ in range(3):
                clock.advance(60)
                await until(lambda: last_run_s(first) == clock.now().timestamp())
            assert math.isnan(violations(second))
            assert math.isnan(last_run_s(second))
            # A year later the first ends; the second does not seem to be a year late.
            clock.advance(365 * 86400)
            await stopping.aclose()
            await until(lambda: violations(second) == 0)
            assert last_run_s(second) == clock.now().timestamp()
        for database in databases:
            database.close()


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
    value = registry.get_sample_value(name)
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


R1 = request_id(1)


@pytest.fixture
async def kept(database: Database, writer: Writer) -> Database:
    """A request that was charged, one that is held, one that was given back; then all guards are taken away."""
    await ask_each(writer, grant(1_000), reserve(1), settle(1, prompt=5, completion=3))
    await ask_each(writer, reserve(2), extend(2, 0, delivered=Usage(completion_tokens=1)))
    await ask_each(writer, reserve(3, claim=claimed()), void(3, lost=Usage(completion_tokens=1)))
    assert await audit(database) == []
    unguard(database)
    return database


def unguard(database: Database) -> None:
    with database.transaction(writes=True) as connection:
        if database.is_sqlite:
            for change in ("update", "delete"):
                connection.exec_driver_sql(f"DROP TRIGGER ledger_refuses_{change}")
            connection.exec_driver_sql("DROP INDEX ledger_books_once")
        else:
            connection.exec_driver_sql("DROP TRIGGER ledger_refuses_change ON ledger")
            connection.exec_driver_sql("ALTER TABLE ledger DROP CONSTRAINT ledger_legs_sum_to_zero")
            connection.exec_driver_sql("ALTER TABLE accounts DROP CONSTRAINT account_is_covered")
            connection.exec_driver_sql("ALTER TABLE holds DROP CONSTRAINT hold_is_not_negative")
            for partition in list_partitions(connection):
                connection.exec_driver_sql(f"DROP INDEX {partition.name}_books_once")


async def violations_after(database: Database, *changes: str, unseen: int = 0) -> list[str]:
    """Returns what a full audit finds. One of the account finds the same, but for so many lines: those of another
    account, and those of a request without entries, to which no index leads."""
    with database.engine.connect() as connection:
        if database.is_sqlite:
            connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        for change in changes:
            connection.execute(sa.text(change))
        connection.commit()
    found = await audit(database)
    with database.transaction(writes=False) as connection:
        of_account = find_violations_of(connection, ACCOUNT)
    assert [line for line in found if line in of_account] == of_account
    assert len(found) - len(of_account) == unseen
    return found


async def test_balance_that_differs_from_the_ledger_is_found(kept: Database) -> None:
    assert await violations_after(kept, "UPDATE accounts SET balance_nanos = balance_nanos + 1") == [
        f"account {ACCOUNT}: balance is +1 nanos off the sum of its ledger"
    ]


async def test_account_that_is_gone_is_found(kept: Database) -> None:
    assert await violations_after(kept, "DELETE FROM accounts") == [
        f"account {ACCOUNT}: balance is -960 nanos off the sum of its ledger",
        f"account {ACCOUNT}: held credit is -100 nanos off the sum of its live holds",
    ]


async def test_held_credit_that_differs_from_the_holds_is_found(kept: Database) -> None:
    assert await violations_after(kept, "UPDATE holds SET amount_nanos = 99 WHERE state = 'held'") == [
        f"account {ACCOUNT}: held credit is +1 nanos off the sum of its live holds"
    ]


async def test_hold_above_the_balance_is_found(kept: Database) -> None:
    violations = await violations_after(kept, "UPDATE accounts SET held_nanos = 961")
    assert f"account {ACCOUNT}: holds 961 nanos of a balance of 960" in violations


async def test_entry_whose_legs_do_not_sum_to_zero_is_found(kept: Database) -> None:
    assert await violations_after(kept, "UPDATE ledger SET external_nanos = 7 WHERE kind = 'charge'") == [
        f"charge of {R1}: its legs sum to 7 nanos, not to zero"
    ]


async def test_request_that_was_charged_twice_is_found(kept: Database) -> None:
    columns = ", ".join(column.name for column in ledger.c if column.name != "entry_id").replace("end", '"end"')
    violations = await violations_after(
        kept,
        f"INSERT INTO ledger ({columns}) SELECT {columns} FROM ledger WHERE kind = 'charge'",
        "UPDATE accounts SET balance_nanos = balance_nanos - 40",
        "UPDATE usage_hours SET requests = 2, prompt_tokens = 10, completion_tokens = 6, cost_nanos = 80",
        "UPDATE holds SET charged_nanos = 80 WHERE state = 'settled'",
    )
    assert violations == [f"charge of {R1}: booked 2 times", f"request {R1}: counted 2 times"]


async def test_request_that_was_counted_twice_is_found(kept: Database) -> None:
    changes = ("UPDATE ledger SET requests = 2 WHERE kind = 'charge'", "UPDATE usage_hours SET requests = 2")
    assert await violations_after(kept, *changes) == [f"request {R1}: counted 2 times"]


async def test_charge_above_the_cost_is_found(kept: Database) -> None:
    violations = await violations_after(
        kept,
        "UPDATE ledger SET customer_nanos = -50, loss_nanos = 10 WHERE kind = 'charge'",
        "UPDATE accounts SET balance_nanos = balance_nanos - 10",
        "UPDATE usage_hours SET cost_nanos = 50, loss_nanos = -10",
        "UPDATE holds SET charged_nanos = 50, loss_nanos = -10 WHERE state = 'settled'",
    )
    assert violations == [f"request {R1}: charged 10 nanos more than it cost"]


async def test_charge_on_other_terms_than_its_hold_s_is_found(kept: Database) -> None:
    for terms, undo in (
        ("account_id = 'acct_other'", f"account_id = '{ACCOUNT}'"), ("key_id = 'key_other'", f"key_id = '{KEY}'"),
        ("class_id = 'mezzo'", "class_id = 'forte'"), ("price_version = 2", "price_version = 1"),
    ):  # fmt: skip
        violations = await violations_after(kept, f"UPDATE holds SET {terms} WHERE state = 'settled'")
        assert violations == [f"charge of {R1}: not by the account, key, class and prices of its hold"]
        assert await violations_after(kept, f"UPDATE holds SET {undo} WHERE state = 'settled'") == []


async def test_entry_that_is_gone_is_found(kept: Database) -> None:
    violations = await violations_after(kept, "DELETE FROM ledger WHERE kind = 'charge'", unseen=2)
    assert violations[:3] == [
        f"account {ACCOUNT}: balance is -40 nanos off the sum of its ledger",
        f"request {R1}: its hold is +40 nanos off its charges, +0 off its losses",
        f"request {R1}: settled, though nothing was booked",
    ]
    assert len(violations) == 4


async def test_settlement_that_was_never_booked_is_found(kept: Database) -> None:
    changed = dict.fromkeys((*COLUMNS, "charged_nanos", "loss_nanos", "loss_bound_nanos"), "0")
    changed["request_id"] = f"'{request_id(4)}'"
    columns = [column.name for column in holds.columns]
    copied = ", ".join(changed.get(name, f'"{name}"') for name in columns)
    into = ", ".join(f'"{name}"' for name in columns)
    statement = f"INSERT INTO holds ({into}) SELECT {copied} FROM holds WHERE state = 'settled'"
    violations = await violations_after(kept, statement, unseen=1)
    assert violations == [f"request {request_id(4)}: settled, though nothing was booked"]


async def test_charge_that_the_hold_does_not_know_is_found(kept: Database) -> None:
    assert await violations_after(kept, "UPDATE holds SET charged_nanos = 0 WHERE state = 'settled'") == [
        f"request {R1}: its hold is -40 nanos off its charges, +0 off its losses"
    ]


async def test_charge_without_a_hold_is_found(kept: Database) -> None:
    assert await violations_after(kept, "DELETE FROM holds WHERE state = 'settled'") == [
        f"request {R1}: its hold is -40 nanos off its charges, +0 off its losses"
    ]


async def test_charge_of_a_request_that_was_given_back_is_found(kept: Database) -> None:
    assert await violations_after(kept, "UPDATE holds SET state = 'void' WHERE state = 'settled'") == [
        f"request {R1}: charged, though its hold is void"
    ]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE usage_hours SET cost_nanos = cost_nanos + 1",
        "UPDATE usage_hours SET requests = 2",
        "UPDATE usage_hours SET cached_tokens = 1",
        "UPDATE usage_hours SET loss_nanos = 1",
        "DELETE FROM usage_hours",
    ],
)
async def test_counter_that_differs_from_the_charges_is_found(kept: Database, change: str) -> None:
    [violation] = await violations_after(kept, change)
    assert violation.startswith(f"usage of account {ACCOUNT}, key key_aaaaaaaaaaaa, class forte, hour ")
    assert violation.endswith(": differs from its charges")


async def test_claim_of_a_request_without_a_hold_is_found(kept: Database) -> None:
    assert await violations_after(kept, "UPDATE claims SET request_id = 'unknown'") == [
        f"account {ACCOUNT}: request unknown has an Idempotency-Key of it, but no hold"
    ]


async def test_claim_of_another_account_s_request_is_found(kept: Database) -> None:
    assert await violations_after(kept, "UPDATE claims SET account_id = 'acct_b'", unseen=1) == [
        f"account acct_b: request {request_id(3)} has an Idempotency-Key of it, but no hold"
    ]


async def test_charge_that_its_tokens_do_not_cost_is_found(kept: Database) -> None:
    violations = await violations_after(
        kept, "UPDATE ledger SET prompt_tokens = 6 WHERE kind = 'charge'", "UPDATE usage_hours SET prompt_tokens = 6"
    )
    assert violations == [f"request {R1}: booked at 40 nanos, its tokens cost 42"]


async def test_charge_by_a_price_that_does_not_exist_is_found(kept: Database) -> None:
    violations = await violations_after(
        kept,
        "UPDATE ledger SET price_version = 9 WHERE kind = 'charge'",
        "UPDATE holds SET price_version = 9 WHERE state = 'settled'",
    )
    assert violations == [f"charge of {R1}: by a price of class forte in version 9, which does not exist"]


async def test_right_costs_are_found_right_also_where_they_are_largest(database: Database, log: Log) -> None:
    """Beyond ten times these the database's integers end."""
    dearest = Price(LARGEST_PRICE_NANOS, LARGEST_PRICE_NANOS - 1, LARGEST_PRICE_NANOS - 999_999)
    prices = await database.write(adopt_prices, {"forte": dearest})
    writer = Writer(database, prices, LIFE_S, log)
    usages = ((1, 1, 1), (0, 0, 0), (7, 3, 10**4 - 1), (10**9, 10**9, 3), (10**9, 0, 0))
    await ask_each(writer, grant(LARGEST_BALANCE_NANOS), *(reserve(number, output=1) for number in range(len(usages))))
    for number, (prompt, cached, completion) in enumerate(usages):
        await ask_each(writer, settle(number, prompt=prompt, cached=cached, completion=completion))
    assert await audit(database) == []
