"""Sums by key, compared with the counters themselves while charges, also late ones, are booked and summed up."""

from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering.credit.batch import Writer
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store.tables import retention, usage_hours
from services.metering.reports.store import key_sums
from services.metering.reports.store.key_sums import KeySums, read_key_sums
from services.metering.reports.store.tables import usage_days
from services.metering.reports.store.usage import UsageReportQuery, read_usage
from tests.services.metering.reading import list_top_keys
from tests.services.metering.reports.store.test_usage import book
from tests.services.metering.reports.test_models import sum_up
from tests.services.metering.samples import ACCOUNT, ask, grant
from tests.services.metering.statements.test_rules import FIRST_US, Calendar, calendar, hasty

__all__ = ["calendar", "hasty"]

PERIOD = (FIRST_US - DAY_US, FIRST_US + 400 * DAY_US)


@dataclass
class Reports:
    database: Database

    def keys(self, start_us: int, end_us: int) -> dict[str, KeySums]:
        with self.database.transaction(writes=False) as connection:
            return read_key_sums(connection, ACCOUNT, start_us, end_us)

    def counted(self, start_us: int, end_us: int) -> dict[str, KeySums]:
        """What the counters say."""
        query = UsageReportQuery(ACCOUNT, start_us, end_us, 0, group_by_key=True, group_by_class=False)
        with self.database.transaction(writes=False) as connection:
            return {row[1]: row[3:] for row in read_usage(connection, query, ((0, 0),), 100)}


@pytest.fixture
def found(database: Database) -> Reports:
    return Reports(database)


async def test_sums_by_key_are_those_of_the_counters_however_many_entries_are_summed_up(
    found: Reports, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 14):
        await book(hasty, calendar, number)
        periods = [
            PERIOD,
            (FIRST_US + number * HOUR_US, PERIOD[1]),
            (FIRST_US, FIRST_US + 20 * HOUR_US),
            (calendar.now_us - calendar.now_us % HOUR_US, PERIOD[1]),
        ]
        for most in (None, 2, None):
            if most:
                sum_up(found.database, most)
            for period in periods:
                assert found.keys(*period) == found.counted(*period)
    assert len(found.counted(*PERIOD)) == 3


async def test_the_keys_with_the_highest_costs_come_first_and_the_others_are_the_last_row(
    database: Database, found: Reports, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 10):
        await book(hasty, calendar, number)
        ranked = sorted(found.counted(*PERIOD).items(), key=lambda item: (-item[1][-1], item[0]))
        for most in (1, 2, 3, 4):
            query = UsageReportQuery(ACCOUNT, *PERIOD, 0, group_by_key=True, group_by_class=False, top_keys=most)
            rows, other_keys = await list_top_keys(database, query)
            shown = [(row.key_id, row.requests, row.cost_nanos) for row in rows]
            expected = [(key_id, sums[0], sums[-1]) for key_id, sums in ranked[:most]]
            if rest := [sums for _, sums in ranked[most:]]:
                expected.append(("", sum(sums[0] for sums in rest), sum(sums[-1] for sums in rest)))
            assert (shown, other_keys) == (expected, len(rest))


async def test_behind_very_many_entries_the_counters_are_added_up(
    found: Reports, hasty: Writer, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade, whose statistics are made entry by entry."""
    await ask(hasty, grant(1_000_000))
    for number in range(1, 5):
        await book(hasty, calendar, number)
    monkeypatch.setattr(key_sums, "RECENT_MOST", 2)
    assert found.keys(*PERIOD) == found.counted(*PERIOD)
    assert rows_of(found.database) == 0


async def test_hours_before_the_oldest_that_is_kept_are_those_of_the_counters(
    found: Reports, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 14):
        await book(hasty, calendar, number)
    while sum_up(found.database):
        pass
    period, marked_us = (PERIOD[0] + DAY_US // 2, PERIOD[1]), FIRST_US + 16 * HOUR_US
    with found.database.transaction(writes=True) as connection:
        connection.execute(sa.update(retention).values(usage_marked_before_us=marked_us))
        connection.execute(sa.delete(usage_hours).where(usage_hours.c.hour_us < marked_us))
    assert found.keys(*period) == found.counted(*period)


def rows_of(database: Database) -> Any:
    with database.transaction(writes=False) as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(usage_days))
