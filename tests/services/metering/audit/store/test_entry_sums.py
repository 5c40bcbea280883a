"""What two passes over the entries prove is what the checks would find right."""

import pytest

from services.chassis.database.database import Database
from services.metering.audit.auditor import audit
from services.metering.audit.store import checks, entry_sums
from services.metering.audit.store.checks import expect_full_tables, read_scope
from services.metering.audit.store.entry_sums import EntryScreen, screen_entries
from services.metering.credit.batch import Writer
from services.metering.credit.store.tables import ledger
from services.rules.usage import Usage
from tests.services.metering.audit.test_auditor import unguard, violations_after
from tests.services.metering.samples import ACCOUNT, ask_each, extend, grant, request_id, reserve, settle, void

COLUMNS = ", ".join(f'"{column.name}"' for column in ledger.c if column.name != "entry_id")
ALL_CHECKS = {checks.balances_against_ledger, checks.counters_against_ledger, checks.unbalanced_entries}


@pytest.fixture
async def kept(database: Database, writer: Writer) -> Database:
    """Two requests that were charged, one that is held, and one that was given back at a loss."""
    await ask_each(writer, grant(1_000), *(reserve(number) for number in range(1, 5)))
    await ask_each(writer, settle(1, completion=3), settle(2, completion=3))
    await ask_each(
        writer, extend(4, 100, delivered=Usage(completion_tokens=1)), void(4, lost=Usage(completion_tokens=1))
    )
    unguard(database)
    return database


def screened(database: Database) -> EntryScreen:
    with database.transaction(writes=False) as connection:
        expect_full_tables(connection)
        return screen_entries(connection, read_scope(connection))


async def test_right_books_are_proved_without_the_checks(kept: Database) -> None:
    assert screened(kept) == EntryScreen(2, {request_id(4)}, frozenset(ALL_CHECKS), True)


async def test_more_entries_than_are_listed_are_left_to_the_checks(
    kept: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_sums, "LISTED_MOST", 0)
    found = screened(kept)
    assert found.proved == ALL_CHECKS - {checks.balances_against_ledger}
    assert not found.are_credits_single
    assert await audit(kept) == []


async def test_counter_of_no_charge_is_found_beside_a_charge_without_a_counter(kept: Database) -> None:
    """There are as many counters as before."""
    violations = await violations_after(kept, "UPDATE usage_hours SET class_id = 'mezzo'")
    assert [line.split(", ")[2] for line in violations] == ["class forte", "class mezzo"]


async def test_counter_of_no_charge_is_found(kept: Database) -> None:
    copied = "key_id, hour_us, requests, prompt_tokens, cached_tokens, completion_tokens, cost_nanos, loss_nanos"
    change = f"INSERT INTO usage_hours (account_id, class_id, {copied}) SELECT account_id, 'mezzo', {copied}"
    [violation] = await violations_after(kept, f"{change} FROM usage_hours")
    assert violation.startswith(f"usage of account {ACCOUNT}, ")
    assert ", class mezzo, " in violation


async def test_grant_that_was_booked_twice_is_found(kept: Database) -> None:
    with kept.transaction(writes=False) as connection:
        [(grant_id,)] = connection.exec_driver_sql("SELECT request_id FROM ledger WHERE kind = 'grant'").all()
    violations = await violations_after(
        kept,
        f"INSERT INTO ledger ({COLUMNS}) SELECT {COLUMNS} FROM ledger WHERE kind = 'grant'",
        "UPDATE accounts SET balance_nanos = balance_nanos + 1000",
    )
    assert violations == [f"grant of {grant_id}: booked 2 times"]


async def test_balance_of_an_account_without_entries_is_found(kept: Database) -> None:
    change = "INSERT INTO accounts (account_id, balance_nanos, held_nanos) VALUES ('acct_b', 1, 0)"
    assert await violations_after(kept, change, unseen=1) == [
        "account acct_b: balance is +1 nanos off the sum of its ledger"
    ]


async def test_entries_of_an_account_without_a_balance_are_found(kept: Database) -> None:
    copied = COLUMNS.replace('"account_id", ', "").replace('"request_id", ', "")
    change = f"INSERT INTO ledger (account_id, request_id, {copied}) SELECT 'acct_b', 'other', {copied}"
    assert await violations_after(kept, f"{change} FROM ledger WHERE kind = 'grant'", unseen=1) == [
        "account acct_b: balance is -1000 nanos off the sum of its ledger"
    ]
