"""Kept sums by key, compared with the counters themselves while charges, also late ones, are booked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.metering.credit.batch import Writer
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store.tables import retention, usage_hours
from services.metering.reports.store import key_totals, usage
from services.metering.reports.store.key_totals import KeyTotals, TopKeys
from services.metering.reports.store.usage import KeySums, UsageReportQuery
from tests.services.metering.reading import list_top_keys
from tests.services.metering.reports.store.test_usage import book, same_time
from tests.services.metering.samples import ACCOUNT, ask, grant
from tests.services.metering.statements.test_rules import FIRST_US, Calendar, calendar, hasty

__all__ = ["calendar", "hasty", "same_time"]

PERIOD = (FIRST_US - DAY_US, FIRST_US + 400 * DAY_US)


@dataclass
class Reports:
    database: Database
    totals: KeyTotals

    def keys(self, start_us: int, end_us: int) -> Mapping[str, KeySums]:
        with self.database.transaction(writes=False) as connection:
            return self.totals.read(connection, ACCOUNT, start_us, end_us)

    def top(self, start_us: int, end_us: int, most: int) -> TopKeys:
        with self.database.transaction(writes=False) as connection:
            return self.totals.read_top(connection, ACCOUNT, start_us, end_us, most)

    def counted(self, start_us: int, end_us: int) -> dict[str, KeySums]:
        """What the counters say."""
        with self.database.transaction(writes=False) as connection:
            return usage.read_key_sums(connection, ACCOUNT, start_us, end_us)


@pytest.fixture
def found(database: Database) -> Reports:
    return Reports(database, KeyTotals())


def total_of(sums: dict[str, KeySums]) -> KeySums:
    return KeySums(*map(sum, zip(*sums.values(), strict=True)))


async def test_sums_by_key_are_those_of_the_counters_whenever_they_were_read(
    found: Reports, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 14):
        await book(hasty, calendar, number)
        periods = [
            PERIOD,
            (FIRST_US + number * HOUR_US, PERIOD[1]),
            # Over: it is extended no more.
            (FIRST_US, FIRST_US + 20 * HOUR_US),
            (calendar.now_us - calendar.now_us % HOUR_US, PERIOD[1]),
        ]
        for start_us, end_us in periods:
            expected = found.counted(start_us, end_us)
            assert found.keys(start_us, end_us) == expected
    assert len(found.counted(*PERIOD)) == 3


async def test_the_keys_with_the_highest_costs_come_first_and_the_others_are_one_sum(
    found: Reports, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 10):
        await book(hasty, calendar, number)
        counted = found.counted(*PERIOD)
        ranked = sorted(counted.items(), key=lambda item: (-item[1].cost_nanos, item[0]))
        for most in (1, 2, 3, 4):
            top = found.top(*PERIOD, most)
            assert top.keys == ranked[:most]
            assert top.other_keys == len(ranked[most:])
            rest = dict(ranked[most:])
            assert top.others == (total_of(rest) if rest else KeySums(0, 0, 0, 0, 0))


async def test_the_others_are_the_last_row_of_a_report(database: Database, hasty: Writer, calendar: Calendar) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 5):
        await book(hasty, calendar, number)
    query = UsageReportQuery(ACCOUNT, *PERIOD, 0, group_by_key=True, group_by_class=False, top_keys=1)
    rows, other_keys = await list_top_keys(database, query, KeyTotals())
    assert [bool(row.key_id) for row in rows] == [True, False]
    assert other_keys == 2
    assert sum(row.requests for row in rows) == 4
    everything = UsageReportQuery(ACCOUNT, *PERIOD, 0, group_by_key=True, group_by_class=False, top_keys=3)
    rows, other_keys = await list_top_keys(database, everything, KeyTotals())
    assert (len(rows), other_keys) == (3, 0)


async def test_a_past_hour_is_added_up_once_also_for_a_period_that_begins_a_day_later(
    found: Reports, hasty: Writer, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 9):
        await book(hasty, calendar, number)
    read, spans = usage.read_key_sums, []

    over_us = calendar.now_us - calendar.now_us % HOUR_US - HOUR_US

    def note(connection: Any, account_id: str, start_us: int, end_us: int) -> dict[str, KeySums]:
        if start_us != over_us:
            spans.append((start_us, end_us))
        return read(connection, account_id, start_us, end_us)

    monkeypatch.setattr(key_totals, "read_key_sums", note)
    found.keys(*PERIOD)
    assert spans == [(PERIOD[0], over_us)]
    spans.clear()
    found.top(*PERIOD, 2)
    found.keys(*PERIOD)
    assert spans == []
    later = (PERIOD[0] + DAY_US, PERIOD[1])
    assert found.keys(*later) == found.counted(*later)
    assert spans == [(PERIOD[0], later[0])]
    spans.clear()
    earlier = (later[0] - 4 * HOUR_US, PERIOD[1])
    assert found.keys(*earlier) == found.counted(*earlier)
    assert spans == [(earlier[0], later[0])]


async def test_hours_that_were_summed_up_by_month_meanwhile_are_not_counted_twice(
    found: Reports, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 14):
        await book(hasty, calendar, number)
    start_us, end_us = PERIOD[0] + DAY_US // 2, PERIOD[1]
    assert found.keys(start_us, end_us) == found.counted(start_us, end_us)
    marked_us = FIRST_US + 16 * HOUR_US
    with found.database.transaction(writes=True) as connection:
        connection.execute(sa.update(retention).values(usage_marked_before_us=marked_us))
        connection.execute(sa.delete(usage_hours).where(usage_hours.c.hour_us < marked_us))
    assert found.keys(start_us, end_us) == found.counted(start_us, end_us)


async def test_periods_that_were_not_looked_at_for_long_are_forgotten(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000_000))
    for number in range(1, 5):
        await book(hasty, calendar, number)
    found = Reports(database, KeyTotals(kept_most=5))
    for days in (0, 10, 20):
        period = (PERIOD[0] - days * DAY_US, PERIOD[1])
        assert found.keys(*period) == found.counted(*period)
    assert [each.start_us for each, _ in found.totals._kept.items()] == [PERIOD[0] - 20 * DAY_US]


async def test_a_second_report_that_would_add_up_the_same_is_refused_for_now(
    database: Database, hasty: Writer, calendar: Calendar
) -> None:
    await ask(hasty, grant(1_000_000))
    await book(hasty, calendar, 1)
    found = Reports(database, KeyTotals(building_wait_s=0.0))
    for lock in found.totals._building:
        lock.acquire()
    with pytest.raises(LegatoError) as refused:
        found.keys(*PERIOD)
    assert refused.value.reason is Reason.UNAVAILABLE
    for lock in found.totals._building:
        lock.release()
    assert found.keys(*PERIOD) == found.counted(*PERIOD)
