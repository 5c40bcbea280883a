"""Kept counters of hours that are not over, compared with the counters themselves while charges are booked."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import sqlalchemy as sa

from services.chassis.database.database import Database
from services.metering.batch import Writer
from services.metering.ledger.prices import Usage
from services.metering.ledger.records import DAY_US, HOUR_US
from services.metering.store import counters as store
from services.metering.store import ledger_days
from services.metering.store.counters import Counter
from services.metering.store.ledger_days import KeySums
from services.metering.store.reports import read_usage
from services.metering.store.tables import ledger
from services.metering.totals import recent_usage
from services.metering.totals.key_buckets import Grouping
from services.metering.totals.recent_usage import RecentUsage
from services.metering.totals.usage_totals import UsageTotals
from tests.services.metering.samples import ACCOUNT, ask, ask_each, checkpoint, grant, reserve, settle, sweep, void
from tests.services.metering.test_statements import FIRST_US, Calendar, calendar, hasty
from tests.services.metering.totals.test_usage_totals import same_time

__all__ = ["calendar", "hasty", "same_time"]

KEYS = tuple(f"key_{number}" for number in range(5))
PERIOD = (FIRST_US - DAY_US, FIRST_US + 400 * DAY_US)
BY_DAY = Grouping(DAY_US, ((0, 0),), by_class=False)
BY_HOUR_AND_CLASS = Grouping(HOUR_US, ((0, 0),), by_class=True)


@dataclass
class Account:
    """Books charges of several keys, some of them late, and losses."""

    writer: Writer
    calendar: Calendar
    chance: random.Random
    booked: int = 0
    # Charged at their last report, and not settled yet.
    swept: list[int] = field(default_factory=list)

    async def book(self) -> None:
        self.booked += 1
        number = self.booked
        await ask(self.writer, reserve(number, prompt=3, key=self.chance.choice(KEYS)))
        match self.chance.randrange(6):
            case 0:
                await ask_each(self.writer, checkpoint(number, completion=1, prompt=3))
                self.calendar.now_us += 1
                await ask(self.writer, sweep(number))
                self.swept.append(number)
            case 1:
                await ask(self.writer, void(number, lost=Usage(completion_tokens=2)))
            case _:
                await ask(self.writer, settle(number, prompt=3, completion=self.chance.randrange(9)))
        if self.swept and self.chance.random() < 0.3:
            late = self.swept.pop(self.chance.randrange(len(self.swept)))
            await ask(self.writer, settle(late, prompt=3, completion=self.chance.randrange(2, 9)))


@pytest.fixture
def account(hasty: Writer, calendar: Calendar) -> Account:
    return Account(hasty, calendar, random.Random(7))


def assert_exact(connection: Any, totals: UsageTotals, start_us: int, end_us: int) -> None:
    """Compares every report from kept sums with the counters of the same snapshot."""
    counted = ledger_days.read_key_sums(connection, ACCOUNT, start_us, end_us)
    assert totals.keys.read_keys(connection, ACCOUNT, start_us, end_us) == counted
    ranked = sorted(counted.items(), key=lambda item: (-item[1].cost_nanos, item[0]))
    for most in (1, 3, 9):
        top = totals.keys.read_top(connection, ACCOUNT, start_us, end_us, most)
        assert (top.keys, top.other_keys) == (ranked[:most], len(ranked[most:]))
        others = [sums for _, sums in ranked[most:]] or [KeySums(0, 0, 0, 0, 0)]
        assert top.others == KeySums(*map(sum, zip(*others, strict=True)))
    expected: dict[tuple[int, str], list[int]] = {}
    for hour in ledger_days.read_class_hours(connection, ACCOUNT, start_us, end_us):
        expected[hour[:2]] = list(hour[2:])
    found = totals.read_buckets(connection, ACCOUNT, start_us, end_us, HOUR_US, ((0, 0),))
    assert {place: list(hour[2:]) for place, hour in found.items()} == expected
    for grouping in (BY_DAY, BY_HOUR_AND_CLASS):
        bucket_us, offsets, by_class = grouping
        rows = read_usage(
            connection,
            ACCOUNT,
            start_us,
            end_us,
            bucket_us=bucket_us,
            offsets=offsets,
            by_key=True,
            by_class=by_class,
            rows_most=10_000,
            key_ids=KEYS[:2],
        )
        by_key = totals.key_buckets.read(connection, ACCOUNT, start_us, end_us, grouping, KEYS[:2])
        assert sorted(
            (start, key_id, class_id, *sums)
            for key_id, of_key in by_key.items()
            for (start, class_id), sums in of_key.items()
        ) == sorted(rows)


def periods(calendar: Calendar) -> list[tuple[int, int]]:
    hour_us = calendar.now_us - calendar.now_us % HOUR_US
    return [
        PERIOD,
        # Today, which may have begun a moment ago.
        (calendar.now_us - calendar.now_us % DAY_US, PERIOD[1]),
        (hour_us, PERIOD[1]),
        # It has just ended.
        (FIRST_US, hour_us),
        (FIRST_US, max(FIRST_US, hour_us - 3 * HOUR_US)),
    ]


@pytest.mark.parametrize(("added_most", "entries_most"), [(200, 2_000), (2, 2_000), (1, 6), (0, 0)])
async def test_reports_are_exact_after_every_charge(
    database: Database,
    account: Account,
    calendar: Calendar,
    monkeypatch: pytest.MonkeyPatch,
    added_most: int,
    entries_most: int,
) -> None:
    monkeypatch.setattr(recent_usage, "ADDED_MOST", added_most)
    monkeypatch.setattr(recent_usage, "ENTRIES_MOST", entries_most)
    await ask(account.writer, grant(1_000_000_000))
    totals = UsageTotals()
    for _ in range(25):
        for _ in range(account.chance.choice((0, 1, 1, 4))):
            await account.book()
        with database.transaction(writes=False) as connection:
            for period in periods(calendar):
                assert_exact(connection, totals, *period)
        calendar.now_us += account.chance.choice((1, HOUR_US // 9, HOUR_US // 2, HOUR_US, 7 * HOUR_US))


async def test_a_report_has_no_charge_that_its_snapshot_does_not_have(
    database: Database, account: Account, calendar: Calendar
) -> None:
    await ask(account.writer, grant(1_000_000_000))
    totals = UsageTotals()
    calendar.now_us += 3 * HOUR_US
    for _ in range(6):
        await account.book()
    with snapshot(database) as earlier:
        for _ in range(6):
            await account.book()
        with database.transaction(writes=False) as later:
            assert_exact(later, totals, *PERIOD)
            sums = totals.keys.read_keys(later, ACCOUNT, *PERIOD)
        assert_exact(earlier, totals, *PERIOD)
        assert totals.keys.read_keys(earlier, ACCOUNT, *PERIOD) != sums
    await account.book()
    with database.transaction(writes=False) as connection:
        assert_exact(connection, totals, *PERIOD)


async def test_a_report_that_began_before_the_end_of_an_hour_counts_no_hour_twice(
    database: Database, account: Account, calendar: Calendar
) -> None:
    await ask(account.writer, grant(1_000_000_000))
    totals = UsageTotals()
    for _ in range(8):
        await account.book()
        calendar.now_us += HOUR_US // 3
    with database.transaction(writes=False) as connection:
        assert_exact(connection, totals, *PERIOD)
        calendar.now_us += HOUR_US
        assert_exact(connection, totals, *PERIOD)
        calendar.now_us -= HOUR_US
        assert_exact(connection, totals, *PERIOD)


async def test_recent_counters_are_read_once_and_then_only_what_was_added(
    database: Database, account: Account, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(account.writer, grant(1_000_000_000))
    recent, reads = RecentUsage(), []
    over_us = calendar.now_us - HOUR_US

    def note(*arguments: Any) -> list[Counter]:
        reads.append(arguments)
        return store.read_counters(*arguments)

    monkeypatch.setattr(recent_usage, "read_counters", note)
    added = []
    for _ in range(5):
        with database.transaction(writes=False) as connection:
            part = recent.read(connection, ACCOUNT, over_us, over_us, PERIOD[1])
        added.append(len(part.added))
        await ask_each(account.writer, reserve(len(added), prompt=3))
        await ask(account.writer, settle(len(added), prompt=3, completion=1))
    assert added == [0, 1, 2, 3, 4]
    assert len(reads) == 1


async def test_a_busy_key_has_one_counter_for_many_charges(
    database: Database, account: Account, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recent_usage, "ADDED_MOST", 0)
    await ask(account.writer, grant(1_000_000_000))
    recent, over_us = RecentUsage(), calendar.now_us - HOUR_US
    for number in range(1, 5):
        await ask(account.writer, reserve(number, prompt=3, key=KEYS[0]))
        await ask(account.writer, settle(number, prompt=3, completion=1))
        with database.transaction(writes=False) as connection:
            part = recent.read(connection, ACCOUNT, over_us, over_us, PERIOD[1])
            expected = store.read_counters(connection, ACCOUNT, over_us, PERIOD[1])
        assert part.of_keys(KEYS[:1]) == expected
        assert (part.added, len(expected)) == ([], 1)


@contextmanager
def snapshot(database: Database) -> Iterator[Any]:
    """A transaction that sees nothing that is committed from now on."""
    with database.transaction(writes=False) as connection:
        connection.execute(sa.select(sa.func.count()).select_from(ledger)).scalar_one()
        yield connection
