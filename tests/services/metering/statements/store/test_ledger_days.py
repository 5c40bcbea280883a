"""Statements by day, and requests of chosen keys, compared with the entries themselves."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.database import Database
from services.metering.credit.batch import Writer
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store.tables import holds, ledger
from services.metering.reports.store.usage import UsageReportQuery
from services.metering.statements import rules as statements
from services.metering.statements.rules import StatementQuery
from services.metering.statements.store.entries import RequestFilter
from tests.services.metering.reading import list_days, list_requests, list_usage
from tests.services.metering.samples import ACCOUNT, ask_each, grant, reserve, settle
from tests.services.metering.statements.test_rules import FIRST_US, Calendar, calendar, fill, hasty

__all__ = ["calendar", "hasty"]

ZONES = ["", "America/Toronto", "Pacific/Auckland"]
PERIOD = (FIRST_US - FIRST_US % DAY_US, FIRST_US + 60 * DAY_US)
NEWEST = StatementQuery(ACCOUNT, None, None, newest_first=True, size=3, position=None)


def entries_of(database: Database) -> list[Any]:
    query = sa.select(ledger).where(ledger.c.account_id == ACCOUNT).order_by(ledger.c.entry_id)
    with database.transaction(writes=False) as connection:
        return list(connection.execute(query))


def local_day(at_us: int, zone: str) -> Any:
    return datetime.fromtimestamp(at_us / 1e6, ZoneInfo(zone or "UTC")).date()


@pytest.mark.parametrize("zone", ZONES)
async def test_days_have_the_sums_of_their_entries_and_end_at_the_balance(
    database: Database, hasty: Writer, calendar: Calendar, zone: str
) -> None:
    # Into a change of the clock, on both sides of the equator.
    calendar.now_us += int(timedelta(days=300) / timedelta(microseconds=1))
    await fill(hasty, calendar, 3, steps=60)
    expected: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for entry in entries_of(database):
        sums = expected[local_day(entry.recorded_at_us, zone)]
        sums[0] += entry.requests
        sums[2 if entry.kind in ("grant", "adjustment") else 1] += entry.customer_nanos
        sums[3] -= entry.loss_nanos
    start_us = FIRST_US
    listed = await list_days(database, ACCOUNT, start_us, start_us + 400 * DAY_US, zone)
    found = {
        local_day(day.start_us, zone): [
            day.sums.requests,
            -day.sums.charged_nanos,
            day.sums.credited_nanos,
            day.sums.loss_nanos,
        ]
        for day in listed.days
    }
    assert found == {day: sums for day, sums in expected.items() if any(sums)}
    balance_nanos = sum(entry.customer_nanos for entry in entries_of(database))
    assert (listed.opening_nanos, listed.days[-1].balance_nanos) == (0, balance_nanos)
    kinds = [stored.entry.kind for stored in listed.bookings]
    assert set(kinds) == {"grant", "adjustment"}
    assert sum(stored.entry.customer_nanos for stored in listed.bookings) == sum(each[2] for each in found.values())
    # Whichever hour a period begins at, it opens with the balance at which the one before ended.
    for place in range(1, len(listed.days), 5):
        from_us = listed.days[place].start_us
        rest = await list_days(database, ACCOUNT, from_us, from_us + 400 * DAY_US, zone)
        assert rest.opening_nanos == listed.days[place - 1].balance_nanos
        assert rest.days == listed.days[place:]


@pytest.mark.parametrize("zone", ZONES)
async def test_usage_by_local_day_adds_up_hours(
    database: Database, hasty: Writer, calendar: Calendar, zone: str
) -> None:
    calendar.now_us += int(timedelta(days=300) / timedelta(microseconds=1))
    await fill(hasty, calendar, 4, steps=60)
    query = UsageReportQuery(
        ACCOUNT, FIRST_US, FIRST_US + 400 * DAY_US, HOUR_US, group_by_key=False, group_by_class=True
    )
    expected: dict[Any, int] = defaultdict(int)
    for row in await list_usage(database, query):
        expected[local_day(row.start_us, zone)] += row.cost_nanos
    rows = await list_usage(database, replace(query, bucket_us=DAY_US, time_zone=zone))
    assert {local_day(row.start_us, zone): row.cost_nanos for row in rows} == expected
    assert all(datetime.fromtimestamp(row.start_us / 1e6, ZoneInfo(zone or "UTC")).hour == 0 for row in rows)
    assert datetime.fromtimestamp(rows[0].start_us / 1e6, UTC).minute == 0


async def test_requests_of_a_key_are_found_however_many_others_came_later(
    database: Database, hasty: Writer, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "SEARCHED_MOST", 5)
    await ask_each(hasty, grant(1_000_000_000))
    keys = ["key_rare" if number in (1, 2, 3, 4, 40, 41, 80) else f"key_{number % 3}" for number in range(1, 100)]
    for number, key in enumerate(keys, start=1):
        calendar.now_us += HOUR_US // 6
        await ask_each(hasty, reserve(number, prompt=3, key=key), settle(number, prompt=3, completion=1))
    await ask_each(hasty, reserve(200, key="key_rare"), reserve(201, key="key_0"))
    with database.transaction(writes=False) as connection:
        query = sa.select(holds.c.request_id, holds.c.key_id).where(holds.c.state == "settled")
        key_of = {row.request_id: row.key_id for row in connection.execute(query)}
    for chosen, most_pages in ((("key_rare",), 8), (("key_1", "key_rare"), 40), (("key_none",), 1)):
        pages, found = 0, []
        query_of = replace(NEWEST, chosen=RequestFilter(chosen))
        while True:
            page = await list_requests(database, query_of)
            assert [receipt.hold.key_id for receipt in page.running] == (
                ["key_rare"] if "key_rare" in chosen and not pages else []
            )
            found += [receipt.hold.request_id for receipt in page.charged]
            pages += 1
            if page.next_position is None:
                break
            query_of = replace(query_of, position=page.next_position)
        assert found == sorted((each for each, key in key_of.items() if key in chosen), reverse=True)
        assert pages <= most_pages
    by_class = await list_requests(database, replace(NEWEST, size=1_000, chosen=RequestFilter((), ("mezzo",))))
    assert by_class.charged == []
