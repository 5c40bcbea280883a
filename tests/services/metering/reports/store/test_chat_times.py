import random
from collections import Counter
from itertools import chain

import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.database import Database
from services.metering.credit.batch import Writer
from services.metering.credit.calendar import month_start_us
from services.metering.credit.records import DAY_US, HOUR_US
from services.metering.credit.store.tables import ledger
from services.metering.reports.chat_times import bucket_of
from services.metering.reports.store.chat_times import ALL_KEYS, delete_hours, read_recent_times, read_times, spans_of
from services.metering.reports.store.model_days import read_reported_id
from services.metering.reports.store.tables import chat_times
from tests.services.metering.audit.test_auditor import unguard
from tests.services.metering.reports.test_models import sum_up
from tests.services.metering.samples import ACCOUNT, KEY, ask_each, grant, request_id, reserve, settle, void

TODAY = 20_000 * DAY_US
ALWAYS = spans_of(0, month_start_us(50_000 * DAY_US))


def test_spans_of_a_period_are_its_months_and_the_days_and_hours_around_them() -> None:
    dice = random.Random(3)
    for _ in range(500):
        start_us = TODAY + dice.randrange(1_000) * HOUR_US
        end_us = start_us + dice.choice([dice.randrange(1, 100), dice.randrange(1, 10_000)]) * HOUR_US
        spans = spans_of(start_us, end_us)
        assert [spans[0].start_us, spans[-1].end_us] == [start_us, end_us]
        assert [span.end_us for span in spans[:-1]] == [span.start_us for span in spans[1:]]
        assert len(spans) <= 5
        for span in spans:
            if span.grain == "month":
                assert {month_start_us(at_us) for at_us in span[1:]} == {*span[1:]}
            elif span.grain == "day":
                assert {at_us % DAY_US for at_us in span[1:]} == {0}
                assert span.end_us - span.start_us < 62 * DAY_US
            else:
                assert span.end_us - span.start_us < 2 * DAY_US
    assert spans_of(TODAY, TODAY) == []


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
    expected = [("", "forte", "duration", {95: 2}), ("", "forte", "first_token", {65: 2})]
    with database.transaction(writes=False) as connection:
        recent = read_recent_times(connection, ACCOUNT, read_reported_id(connection), 100)
        assert (
            sorted((chat.measure, chat.bucket) for chat in recent) == [("duration", 95)] * 2 + [("first_token", 65)] * 2
        )
        assert read_times(connection, ACCOUNT, ALWAYS) == [[]]
    sum_up(database)
    with database.transaction(writes=False) as connection:
        assert read_recent_times(connection, ACCOUNT, read_reported_id(connection), 100) == []
        [found] = read_times(connection, ACCOUNT, ALWAYS)
        assert sorted(found) == expected
        [by_key] = read_times(connection, ACCOUNT, ALWAYS, [KEY])
        assert sorted(by_key) == [(KEY, *row[1:]) for row in expected]
        assert read_times(connection, ACCOUNT, ALWAYS, ["key_other"]) == [[]]
        assert read_times(connection, "acct_bbbbbbbbbbbbbbbb", ALWAYS) == [[]]
        assert {row.key_id for row in connection.execute(sa.select(chat_times))} == {ALL_KEYS, KEY}
    # Later ones are added to them.
    await ask_each(writer, *map(reserve, (6, 7)), *(replace(settle(each), duration_ms=4_000 * each) for each in (6, 7)))
    sum_up(database)
    with database.transaction(writes=False) as connection:
        totals: Counter[int] = Counter()
        for _, _, measure, counts in chain(*read_times(connection, ACCOUNT, ALWAYS, [KEY])):
            if measure == "duration":
                totals.update(counts)
        assert totals == Counter([95, 95, bucket_of(24_000), bucket_of(28_000)])


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
            connection.execute(sa.update(ledger).where(is_its_own).values(hour_us=hour_us))
    sum_up(database)
    with database.transaction(writes=False) as connection:
        for part_hours in (50, 240, 1_000, 3_000):
            # In a zone whose days begin at 5 o'clock.
            for start_us in range(TODAY - 19 * HOUR_US, TODAY + 2_400 * HOUR_US, part_hours * HOUR_US):
                end_us = start_us + part_hours * HOUR_US
                for key_ids in ([], [KEY]):
                    found = chain(*read_times(connection, ACCOUNT, spans_of(start_us, end_us), key_ids))
                    assert sum(sum(row[-1].values()) for row in found) == sum(
                        start_us <= hour_us < end_us for hour_us in hours
                    )


async def test_hours_can_go_while_days_and_months_stay(database: Database, writer: Writer) -> None:
    await ask_each(writer, grant(1_000), reserve(1), replace(settle(1, completion=1), duration_ms=100))
    sum_up(database)
    with database.transaction(writes=True) as connection:
        assert delete_hours(connection, [ACCOUNT], 0, 50_000 * DAY_US) == 2
        assert sorted(connection.scalars(sa.select(chat_times.c.grain))) == ["day", "key_day", "key_month", "month"]
