"""Usage of all keys together, compared with the counters of each while charges, also late ones, are booked."""

import pytest
from msgspec.structs import replace

from services.chassis.database.database import Database
from services.metering.credit.batch import Writer
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store.balances import read_balances
from services.metering.reports.store import usage
from services.metering.reports.store.usage import UsageReportQuery
from services.metering.reports.usage import UsageRow
from services.metering.statements.store import ledger_days
from tests.services.metering.reading import list_days, list_usage
from tests.services.metering.samples import ACCOUNT, adjust, ask, ask_each, checkpoint, grant, reserve, settle, sweep
from tests.services.metering.statements.test_rules import FIRST_US, Calendar, calendar, hasty

__all__ = ["calendar", "hasty"]

PERIOD = (FIRST_US - DAY_US, FIRST_US + 400 * DAY_US)
BY_CLASS = UsageReportQuery(ACCOUNT, *PERIOD, HOUR_US, group_by_key=False, group_by_class=True)
BY_KEY = UsageReportQuery(ACCOUNT, *PERIOD, HOUR_US, group_by_key=True, group_by_class=True)


async def book(hasty: Writer, calendar: Calendar, number: int) -> None:
    """Charges a request, and part of the one before, which was charged hours ago."""
    calendar.now_us += 5 * HOUR_US
    await ask(hasty, reserve(number, prompt=3, key=f"key_{number % 3}"))
    await ask_each(hasty, checkpoint(number, completion=1, prompt=3))
    calendar.now_us += 1
    await ask(hasty, sweep(number))
    if number > 1:
        await ask(hasty, settle(number - 1, prompt=3, completion=5 + number % 4))
    await ask(hasty, adjust(7, adjustment_id=f"adjustment-{number}"))


def totals_of(rows: list[UsageRow]) -> dict[tuple[int, str], tuple[int, ...]]:
    sums: dict[tuple[int, str], tuple[int, ...]] = {}
    for row in rows:
        usage = row.usage
        figures = (row.requests, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, row.cost_nanos)
        before = sums.get((row.start_us, row.class_id), (0,) * 5)
        sums[row.start_us, row.class_id] = tuple(map(sum, zip(before, figures, strict=True)))
    return sums


async def test_reports_from_the_sums_of_hours_are_those_of_the_counters(
    database: Database,
    hasty: Writer,
    calendar: Calendar,
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 14):
        await book(hasty, calendar, number)
        found = totals_of(await list_usage(database, BY_CLASS))
        assert found == totals_of(await list_usage(database, BY_KEY))
        assert len(found) >= number
        listed = await list_days(database, ACCOUNT, *PERIOD, "")
        with database.transaction(writes=False) as connection:
            opening_nanos = ledger_days.read_opening_balance(connection, ACCOUNT, FIRST_US + DAY_US)
            balance_nanos = read_balances(connection, [ACCOUNT])[0].balance_nanos
        assert (listed.opening_nanos, listed.days[-1].balance_nanos) == (0, balance_nanos)
        later = await list_days(database, ACCOUNT, FIRST_US + DAY_US, PERIOD[1], "America/Toronto")
        assert later.opening_nanos == opening_nanos


async def test_a_whole_period_has_one_row_for_each_key(
    database: Database,
    hasty: Writer,
    calendar: Calendar,
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 8):
        await book(hasty, calendar, number)
    whole = UsageReportQuery(ACCOUNT, *PERIOD, 0, group_by_key=True, group_by_class=False)
    rows = await list_usage(database, whole)
    assert [(row.start_us, row.key_id) for row in rows] == [(PERIOD[0], f"key_{number}") for number in range(3)]
    chosen = UsageReportQuery(
        ACCOUNT, *PERIOD, 0, group_by_key=True, group_by_class=False, key_ids=("key_1", "key_none")
    )
    assert await list_usage(database, chosen) == [rows[1]]
    everything = UsageReportQuery(ACCOUNT, *PERIOD, 0, group_by_key=False, group_by_class=False)
    [total] = await list_usage(database, everything)
    assert total.cost_nanos == sum(row.cost_nanos for row in rows)


async def test_counters_of_few_keys_among_many_are_looked_up_one_by_one(
    database: Database, hasty: Writer, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 9):
        await book(hasty, calendar, number)

    def read(*key_ids: str) -> list[usage.CountedRow]:
        with database.transaction(writes=False) as connection:
            query = replace(BY_KEY, bucket_us=DAY_US, key_ids=key_ids)
            return usage.read_usage(connection, query, ((0, 0),), 100)

    expected = [row for row in read() if row[1] in ("key_0", "key_2")]
    assert len(expected) > 2
    for lookups_most in (0, 1_000):
        monkeypatch.setattr(usage, "LOOKUPS_MOST", lookups_most)
        assert read("key_0", "key_2", "key_none") == expected
