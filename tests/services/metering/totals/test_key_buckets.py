"""Kept sums of single keys by day, compared with the counters themselves."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering import reports as usage_reports
from services.metering.batch import Writer
from services.metering.ledger.records import DAY_US, HOUR_US
from services.metering.reports import UsageReportQuery, UsageRow, list_usage
from services.metering.store.reports import read_usage
from services.metering.store.tables import retention, usage_hours
from services.metering.totals import key_buckets
from services.metering.totals.usage_totals import UsageTotals
from tests.services.metering.samples import ACCOUNT, ask, grant
from tests.services.metering.test_statements import FIRST_US, Calendar, calendar, hasty
from tests.services.metering.totals.test_usage_totals import book, same_time

__all__ = ["calendar", "hasty", "same_time"]

PERIOD = (FIRST_US - DAY_US, FIRST_US + 60 * DAY_US)
KEYS = ("key_0", "key_2", "key_none")


def by_day(*, group_by_key: bool = True, group_by_class: bool = False, time_zone: str = "") -> UsageReportQuery:
    return UsageReportQuery(
        ACCOUNT,
        *PERIOD,
        DAY_US,
        group_by_key=group_by_key,
        group_by_class=group_by_class,
        key_ids=KEYS,
        time_zone=time_zone,
    )


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, list[str]]]:
    """The periods whose counters were looked up, and of which keys."""
    found: list[tuple[int, int, list[str]]] = []

    def note(connection: Any, account_id: str, start_us: int, end_us: int, **others: Any) -> Any:
        found.append((start_us, end_us, others["key_ids"]))
        return read_usage(connection, account_id, start_us, end_us, **others)

    monkeypatch.setattr(key_buckets, "read_usage", note)
    return found


@pytest.fixture
def counted(database: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[[UsageReportQuery], Any]:
    """Reports from the counters alone."""

    async def read(query: UsageReportQuery) -> list[UsageRow]:
        with monkeypatch.context() as patch:
            patch.setattr(usage_reports, "REPORT_MOST", 0)
            return await list_usage(database, query, UsageTotals())

    return read


@pytest.mark.parametrize("zone", ["", "America/Toronto"])
async def test_reports_of_keys_by_day_are_those_of_the_counters(
    database: Database, hasty: Writer, calendar: Calendar, counted: Callable[[UsageReportQuery], Any], zone: str
) -> None:
    await ask(hasty, grant(1_000_000))
    totals = UsageTotals()
    queries = [
        by_day(group_by_key=is_by_key, group_by_class=is_by_class, time_zone=zone)
        for is_by_key in (True, False)
        for is_by_class in (True, False)
    ]
    for number in range(1, 12):
        await book(hasty, calendar, number)
        for query in queries:
            assert await list_usage(database, query, totals) == await counted(query)
    assert len(await counted(queries[0])) > 4


async def test_counters_of_past_hours_are_looked_up_once(
    database: Database, hasty: Writer, calendar: Calendar, spans: list[tuple[int, int, list[str]]]
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 9):
        await book(hasty, calendar, number)
    totals = UsageTotals()
    over_us = calendar.now_us - calendar.now_us % HOUR_US - HOUR_US
    await list_usage(database, by_day(), totals)
    assert spans == [(PERIOD[0], over_us, list(KEYS))]
    spans.clear()
    await list_usage(database, by_day(), totals)
    assert spans == []
    await book(hasty, calendar, 9)
    await list_usage(database, by_day(), totals)
    assert spans == [(over_us, over_us + 5 * HOUR_US, list(KEYS))]


async def test_hours_that_were_summed_up_by_month_meanwhile_are_read_anew(
    database: Database, hasty: Writer, calendar: Calendar, counted: Callable[[UsageReportQuery], Any]
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 14):
        await book(hasty, calendar, number)
    totals = UsageTotals()
    before = await list_usage(database, by_day(), totals)
    marked_us = FIRST_US + 16 * HOUR_US
    with database.transaction(writes=True) as connection:
        connection.execute(sa.update(retention).values(usage_marked_before_us=marked_us))
        connection.execute(sa.delete(usage_hours).where(usage_hours.c.hour_us < marked_us - 4 * HOUR_US))
    after = await list_usage(database, by_day(), totals)
    assert after == await counted(by_day())
    assert after != before


async def test_a_report_of_very_many_rows_is_not_kept(database: Database, hasty: Writer, calendar: Calendar) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 4):
        await book(hasty, calendar, number)
    totals = UsageTotals()
    many = tuple(f"key_{number}" for number in range(400))
    query = UsageReportQuery(ACCOUNT, *PERIOD, DAY_US, group_by_key=True, group_by_class=False, key_ids=many)
    assert {row.key_id for row in await list_usage(database, query, totals)} == {"key_0", "key_1", "key_2"}
    assert totals.key_buckets._kept.items() == []
