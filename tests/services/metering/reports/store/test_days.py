import random
from collections import Counter

import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.database import Database
from services.metering.credit.batch import Writer
from services.metering.credit.calendar import month_start_us
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store.tables import ledger
from services.metering.reports.additions import Counts
from services.metering.reports.chat_times import Measure, bucket_of
from services.metering.reports.spans import starts_of
from services.metering.reports.store.account_days import read_outcomes, read_requests
from services.metering.reports.store.days import delete_hours
from services.metering.reports.store.entries import read_recent
from services.metering.reports.store.tables import usage_days
from tests.services.metering.audit.test_auditor import unguard
from tests.services.metering.reports.test_models import sum_up
from tests.services.metering.samples import (
    ACCOUNT,
    KEY,
    ask_each,
    grant,
    model_call,
    request_id,
    reserve,
    settle,
    void,
)  # fmt: skip

TODAY = 20_000 * DAY_US
ALWAYS = (month_start_us(19_000 * DAY_US), month_start_us(22_000 * DAY_US))


def counted(database: Database, *key_ids: str, period: tuple[int, int] = ALWAYS, account: str = ACCOUNT) -> Counts:
    counts = Counts()
    with database.transaction(writes=False) as connection:
        chosen = account, starts_of([period]), key_ids
        for row in read_outcomes(connection, *chosen):
            assert (row.key_id in key_ids) if key_ids else not row.key_id
            counts.add_outcomes(row.outcomes)
        for _, class_id, requests in read_requests(connection, *chosen):
            assert class_id in ("forte", "")
            counts.sums["requests"] += requests
    return counts


def recent_times(database: Database) -> Counter[tuple[Measure, int]]:
    with database.transaction(writes=False) as connection:
        return Counter(time for each in read_recent(connection, 100, ACCOUNT) or () for time in each.times.items())


async def test_times_are_those_of_charged_chats_once_in_the_sums_and_before_among_the_recent_ones(
    database: Database, writer: Writer
) -> None:
    await ask_each(
        writer,
        grant(10_000),
        *(reserve(number) for number in range(1, 6)),
        replace(settle(1, completion=1), first_token_ms=300, duration_ms=4_000),
        # Not streamed.
        replace(settle(2, completion=1), duration_ms=4_000),
        # Not whole.
        replace(settle(3, completion=1, end="client_gone"), first_token_ms=300, duration_ms=9_000),
        # Of an edge that does not tell, and of one that crashed.
        settle(4, completion=1),
        replace(void(5), duration_ms=7),
    )
    expected = {"duration": {95: 2}, "first_token": {65: 2}}
    assert recent_times(database) == {("duration", 95): 2, ("first_token", 65): 2}
    assert not counted(database).has_outcomes
    sum_up(database)
    assert not recent_times(database)
    for key_ids in ((), (KEY,)):
        found = counted(database, *key_ids)
        assert (found.times, found.sums["requests"]) == (expected, 4)
    assert not counted(database, "key_other").has_outcomes
    assert not counted(database, account="acct_bbbbbbbbbbbbbbbb").has_outcomes
    # Later ones are added to them; also where another model is called, whose row has no times.
    await ask_each(
        writer, reserve(6), reserve(7),
        *(replace(settle(each, calls=[model_call("acme")]), duration_ms=4_000 * each) for each in (6, 7)),
    )  # fmt: skip
    sum_up(database)
    durations = {95: 2, bucket_of(24_000): 1, bucket_of(28_000): 1}
    for key_ids in ((), (KEY,)):
        assert counted(database, *key_ids).times == {"duration": durations, "first_token": {65: 2}}


async def test_calls_and_grants_leave_the_times_of_a_row(database: Database, writer: Writer) -> None:
    calls = [model_call("acme"), model_call("blau")]
    await ask_each(
        writer, grant(1_000), reserve(1), reserve(2),
        replace(settle(1, calls=calls[:1]), duration_ms=100), settle(2, calls=calls),
    )  # fmt: skip
    while sum_up(database, 1):
        pass
    assert counted(database).times["duration"] == {bucket_of(100): 1}


async def test_a_receipt_keeps_the_times(database: Database, writer: Writer) -> None:
    await ask_each(writer, grant(1_000), reserve(1), replace(settle(1), first_token_ms=300, duration_ms=4_000))
    with database.transaction(writes=False) as connection:
        row = connection.execute(sa.text("SELECT first_token_ms, duration_ms FROM holds")).one()
    assert tuple(row) == (300, 4_000)


async def test_parts_of_any_length_have_all_chats_in_them(database: Database, writer: Writer) -> None:
    """Chats in many hours: those of a part are found whether it is read by hours, days or months."""
    dice = random.Random(5)
    hours = [TODAY + dice.randrange(2_400) * HOUR_US for _ in range(12)]
    numbers = range(1, len(hours) + 1)
    settled = (replace(settle(number, completion=1), duration_ms=100) for number in numbers)
    await ask_each(writer, grant(100_000), *map(reserve, numbers), *settled)
    unguard(database)
    with database.transaction(writes=True) as connection:
        for number, hour_us in zip(numbers, hours, strict=True):
            is_its_own = ledger.c.request_id == request_id(number)
            connection.execute(sa.update(ledger).where(is_its_own).values(recorded_at_us=hour_us + 1))
    sum_up(database)
    for part_hours in (50, 240, 1_000, 3_000):
        # In a zone whose days begin at 5 o'clock.
        for start_us in range(TODAY - 19 * HOUR_US, TODAY + 2_400 * HOUR_US, part_hours * HOUR_US):
            period = (start_us, start_us + part_hours * HOUR_US)
            for key_ids in ((), (KEY,)):
                found = counted(database, *key_ids, period=period)
                expected = sum(period[0] <= hour_us < period[1] for hour_us in hours)
                assert found.sums["requests"] == sum(found.times["duration"].values()) == expected


async def test_hours_can_go_while_days_and_months_stay(database: Database, writer: Writer) -> None:
    await ask_each(writer, grant(1_000), reserve(1), replace(settle(1, completion=1), duration_ms=100))
    sum_up(database)
    with database.transaction(writes=True) as connection:
        assert delete_hours(connection, [ACCOUNT], 0, 50_000 * DAY_US) == 3
        left = Counter(map(tuple, connection.execute(sa.select(usage_days.c.of_key, usage_days.c.span))))
    # Those of the grant, of all keys, and of the key.
    assert left == {(False, "day"): 2, (False, "month"): 2, (True, "day"): 1, (True, "month"): 1}
