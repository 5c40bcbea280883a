"""Statements, from ledgers of several days that are written while they are read."""

import random
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.database import Database, open_database
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit
from services.metering.credit.batch import Writer
from services.metering.credit.prices import Price, Prices
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store import batches
from services.metering.credit.store.balances import read_balances
from services.metering.credit.store.prices import adopt_prices, read_price_list
from services.metering.credit.store.tables import ledger
from services.metering.statements.credit_history import BEGINNING, read_page
from services.metering.statements.rules import StatementQuery
from services.metering.statements.store.entries import (
    CLOCK_STEP_US,
    StatementEntry,
    find_last_of_account,
    read_balance_after,
)
from services.rules.usage import Usage
from tests.services.metering.conftest import MIGRATIONS
from tests.services.metering.reading import find_request, list_entries, list_requests
from tests.services.metering.samples import (
    ACCOUNT,
    PRICES,
    adjust,
    ask,
    ask_each,
    checkpoint,
    grant,
    request_id,
    reserve,
    settle,
    sweep,
    void,
)

pytestmark = pytest.mark.sqlite_suffices

OTHER = "acct_bbbbbbbbbbbbbbbb"
FIRST_US = 20_000 * DAY_US
EVERYTHING = StatementQuery(ACCOUNT, None, None, newest_first=False, size=1_000, position=None)


class Calendar:
    def __init__(self) -> None:
        self.now_us = FIRST_US


@pytest.fixture
def calendar(monkeypatch: pytest.MonkeyPatch) -> Calendar:
    calendar = Calendar()
    monkeypatch.setattr(batches, "now_us_query", lambda connection: f"SELECT {calendar.now_us}")
    return calendar


@pytest.fixture
async def hasty(database: Database, prices: Prices, log: Log, calendar: Calendar) -> AsyncIterator[Writer]:
    """Its holds are overdue at once."""
    writer = Writer(database, prices, -1.0, log)
    yield writer
    await writer.close()


async def fill(hasty: Writer, calendar: Calendar, seed: int, steps: int = 40) -> None:
    """Books charges, late charges, losses and adjustments over some days; the clock is set back now and then."""
    chance = random.Random(seed)
    await ask_each(hasty, grant(1_000_000_000), grant(10_000, account=OTHER, grant_id="other"))
    for number in range(1, steps):
        calendar.now_us += chance.choice((1, 1_000_000, HOUR_US // 7, HOUR_US, 9 * HOUR_US))
        # Near the limits of an hour, where sums could go wrong.
        if chance.random() < 0.3:
            calendar.now_us += HOUR_US - calendar.now_us % HOUR_US + chance.choice((0, 5_000_000))
        if chance.random() < 0.3:
            calendar.now_us -= chance.randrange(CLOCK_STEP_US // 2)
        await ask(hasty, reserve(number, prompt=3))
        match chance.randrange(5):
            case 0:
                # Charged at its last report, and for the rest much later.
                await ask_each(hasty, checkpoint(number, completion=1, prompt=3))
                calendar.now_us += 1
                await ask(hasty, sweep(number))
                calendar.now_us += chance.choice((1, HOUR_US, DAY_US))
                await ask(hasty, settle(number, prompt=3, completion=chance.randrange(2, 9)))
            case 1:
                await ask(hasty, void(number, lost=Usage(completion_tokens=chance.randrange(3))))
            case _:
                await ask(hasty, settle(number, prompt=3, completion=chance.randrange(9)))
        if chance.random() < 0.2:
            await ask(hasty, adjust(chance.choice((-5, 7)), adjustment_id=f"adjustment-{number}"))
        if chance.random() < 0.2:
            other = request_id(1000 + number)
            await ask_each(hasty, replace(reserve(number, account=OTHER), request_id=other))
            await ask(hasty, replace(settle(number, completion=1, account=OTHER), request_id=other))


async def all_pages(database: Database, query: StatementQuery) -> list[StatementEntry]:
    entries: list[StatementEntry] = []
    while True:
        page = await list_entries(database, query)
        entries += page.entries
        assert len(page.entries) <= query.size
        if page.next_position is None:
            return entries
        assert len(page.entries) == query.size
        query = replace(query, position=page.next_position)


def stored_entries(database: Database) -> list[StatementEntry]:
    """Computes the list as its definition says: every entry, and the sum so far."""
    columns = (ledger.c.entry_id, ledger.c.customer_nanos, ledger.c.recorded_at_us)
    query = sa.select(*columns).where(ledger.c.account_id == ACCOUNT).order_by(ledger.c.entry_id)
    with database.transaction(writes=False) as connection:
        rows: Sequence[Any] = connection.execute(query).all()
    sums = accumulate(row.customer_nanos for row in rows)
    return [StatementEntry(row.entry_id, row, nanos) for row, nanos in zip(rows, sums, strict=True)]


def outline(entries: list[StatementEntry]) -> list[tuple[int, int]]:
    return [(listed.entry_id, listed.balance_nanos) for listed in entries]


@pytest.mark.parametrize("seed", range(3))
async def test_running_balance_ends_at_the_balance_and_pages_of_any_size_are_the_same_list(
    database: Database, hasty: Writer, calendar: Calendar, seed: int
) -> None:
    await fill(hasty, calendar, seed)
    expected = outline(stored_entries(database))
    with database.transaction(writes=False) as connection:
        [account] = read_balances(connection, [ACCOUNT])
    assert expected[-1][1] == account.balance_nanos
    assert await audit(database) == []
    for size in (1, 3, len(expected), 1_000):
        query = replace(EVERYTHING, size=size)
        assert outline(await all_pages(database, query)) == expected
        assert outline(await all_pages(database, replace(query, newest_first=True))) == expected[::-1]


@pytest.mark.parametrize("seed", range(3))
async def test_periods_divide_the_list_without_a_gap_and_begin_with_the_balance_before(
    database: Database, hasty: Writer, calendar: Calendar, seed: int
) -> None:
    await fill(hasty, calendar, seed)
    stored = stored_entries(database)
    expected, times = outline(stored), sorted({listed.entry.recorded_at_us for listed in stored})
    chance = random.Random(seed)
    hours = {at_us - at_us % HOUR_US for at_us in times}
    limits = sorted({FIRST_US - DAY_US, *chance.sample(times, 6), *chance.sample(sorted(hours), 6), times[-1] + DAY_US})
    for newest_first in (False, True):
        listed: list[tuple[int, int]] = []
        for start_us, end_us in pairwise(limits):
            period = replace(EVERYTHING, start_us=start_us, end_us=end_us, size=4, newest_first=newest_first)
            found = outline(await all_pages(database, period))
            listed += reversed(found) if newest_first else found
        assert listed == expected
    for at_us in limits:
        with database.transaction(writes=False) as connection:
            last_id = find_last_of_account(connection, ACCOUNT, at_us)
            found_nanos = read_balance_after(connection, ACCOUNT, last_id, at_us)
        assert found_nanos == next((balance for entry_id, balance in reversed(expected) if entry_id <= last_id), 0)


async def test_entries_of_a_period_are_those_recorded_in_it(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000))
    for number in (1, 2, 3):
        calendar.now_us += HOUR_US // 2
        await ask_each(hasty, reserve(number), settle(number, completion=number))
    query = replace(EVERYTHING, start_us=FIRST_US + HOUR_US // 2, end_us=calendar.now_us)
    listed = await all_pages(database, query)
    assert [entry.entry.request_id for entry in listed] == [request_id(1), request_id(2)]
    assert [entry.balance_nanos for entry in listed] == [990, 970]


async def test_pages_are_parts_of_one_list_though_requests_are_charged_between_them(
    database: Database, writer: Writer
) -> None:
    await ask(writer, grant(1_000_000))
    for number in range(1, 10):
        await ask_each(writer, reserve(number), settle(number, completion=number))
    before = outline(await all_pages(database, EVERYTHING))
    listed: list[tuple[int, int]] = []
    for newest_first in (True, False):
        query, listed = replace(EVERYTHING, size=2, newest_first=newest_first), []
        for number in range(100, 200):
            page = await list_entries(database, query)
            listed += outline(page.entries)
            if page.next_position is None:
                break
            query = replace(query, position=page.next_position)
            if number < 103:
                booked = number + 10 * newest_first
                await ask_each(writer, reserve(booked), settle(booked, completion=1))
        if newest_first:
            assert listed == before[::-1]
    assert listed == outline(await all_pages(database, EVERYTHING))
    assert len(listed) == 10 + 3 + 3


async def test_receipts_are_listed_once_each_with_what_recomputes_their_charge(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    await fill(hasty, calendar, seed=7)
    await ask(hasty, reserve(500))
    query, charged, running = replace(EVERYTHING, newest_first=True, size=5), [], []
    while True:
        page = await list_requests(database, query)
        charged += page.charged
        running += page.running
        if page.next_position is None:
            break
        query = replace(query, position=page.next_position)
    assert [receipt.hold.request_id for receipt in running] == [request_id(500)]
    entries = [listed.entry for listed in await all_pages(database, EVERYTHING)]
    ids = [entry.request_id for entry in entries if entry.kind in ("charge", "late_charge")]
    assert [receipt.hold.request_id for receipt in charged] == list(dict.fromkeys(ids))[::-1]
    assert len(ids) > len(charged)
    for receipt in charged:
        assert receipt.price is not None
        assert receipt.price.cost_nanos(receipt.hold.usage) == receipt.hold.charged_nanos + receipt.hold.loss_nanos
        booked = [entry.customer_nanos for entry in entries if entry.request_id == receipt.hold.request_id]
        assert receipt.hold.charged_nanos == -sum(booked)


async def test_requests_of_a_period_are_those_charged_in_it_and_those_begun_in_it_that_run(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(10_000))
    for number in (1, 2, 3):
        calendar.now_us += HOUR_US
        await ask_each(hasty, reserve(number), settle(number), reserve(10 + number))
    query = replace(EVERYTHING, newest_first=True, start_us=FIRST_US + 2 * HOUR_US, end_us=FIRST_US + 3 * HOUR_US)
    page = await list_requests(database, query)
    assert [receipt.hold.request_id for receipt in page.charged] == [request_id(2)]
    assert [receipt.hold.request_id for receipt in page.running] == [request_id(12)]


async def test_request_that_was_not_charged_is_found_by_its_id_with_the_reason(
    database: Database, writer: Writer
) -> None:
    await ask_each(writer, grant(1_000), reserve(1), void(1), void(2))
    held, never_held = [await find_request(database, ACCOUNT, request_id(number)) for number in (1, 2)]
    assert held is not None
    assert never_held is not None
    assert (held.hold.state, held.hold.end, held.hold.charged_nanos) == ("void", "refused", 0)
    assert held.price == PRICES["forte"]
    assert (never_held.hold.end, never_held.price) == ("refused", None)
    assert await find_request(database, OTHER, request_id(1)) is None
    assert (await list_requests(database, replace(EVERYTHING, newest_first=True))).charged == []


async def test_versions_of_prices_are_listed_newest_first(database: Database, prices: Prices) -> None:
    dearer = PRICES | {"forte": Price(3_000_000, 1_000_000, 10_000_000)}
    with database.transaction(writes=True) as connection:
        adopt_prices(connection, dearer)
    current, versions = await database.read(read_price_list)
    assert current == 2
    assert [(each.version, prices) for each, prices in versions.items()] == [(2, dearer), (1, PRICES)]
    newer, older = versions
    assert newer.effective_from_us >= older.effective_from_us


def test_sqlite_reads_few_rows_for_the_balance_at_a_time_and_for_a_list_of_credits(tmp_path: Path) -> None:
    database = open_database("metering", "", tmp_path)
    database.migrate(MIGRATIONS)
    ran: list[tuple[str, Any]] = []
    with database.transaction(writes=False) as connection:
        sa.event.listen(connection, "before_cursor_execute", lambda *run: ran.append((run[2], run[3])))
        read_balance_after(connection, ACCOUNT, 5, FIRST_US)
        read_page(connection, ACCOUNT, BEGINNING, 10)
        steps = {
            text: " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values))
            for text, values in list(ran)
        }
    database.close()
    rare = [plan for text, plan in steps.items() if "!= 'charge'" in text]
    assert len(rare) == 7
    assert all("ledger_credits_by_account (account_id=? AND recorded_at_us>?" in plan for plan in rare)
    assert all("ledger_by_account (account_id=?" in plan for text, plan in steps.items() if "max(" in text)
    assert not any("SCAN ledger" in plan or "SCAN usage_hours" in plan for plan in steps.values())
