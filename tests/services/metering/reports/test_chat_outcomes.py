"""What owners are told of failures and times, compared with what was done, chat by chat."""

import random
from collections import Counter, defaultdict
from typing import Any

import pytest
from msgspec.structs import replace

from services.chassis.database.clock import read_now_us
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.metering.credit.batch import Writer
from services.metering.credit.records import HOUR_US
from services.metering.reports.chat_outcomes import (
    KEYS_MOST,
    ChatOutcomes,
    FailedChats,
    OutcomesQuery,
    OutcomesReport,
    report_outcomes,
)
from services.metering.reports.chat_times import bucket_of, percentiles_of
from services.metering.reports.store.failures import Failures, add_failures
from tests.services.metering.reports.test_models import sum_up
from tests.services.metering.samples import ACCOUNT, ask_each, grant, reserve, settle

pytestmark = pytest.mark.sqlite_suffices

KEYS = ("key_a", "key_b", "key_c")
NOTHING = percentiles_of({})


def query(database: Database, **changes: Any) -> OutcomesQuery:
    """Asks by hour, from two hours ago until an hour from now."""
    with database.transaction(writes=False) as connection:
        hour_us = read_now_us(connection) // HOUR_US * HOUR_US
    starts = tuple(hour_us + each * HOUR_US for each in (-2, -1, 0, 1))
    return replace(OutcomesQuery(ACCOUNT, starts, hour_us + 2 * HOUR_US), **changes)


def report(database: Database, asked: OutcomesQuery) -> OutcomesReport:
    with database.transaction(writes=False) as connection:
        return report_outcomes(connection, asked)


def fail(database: Database, *failures: Failures) -> None:
    with database.transaction(writes=True) as connection:
        add_failures(connection, failures)


async def test_report_is_that_of_the_chats_themselves_before_and_after_they_are_summed_up(
    database: Database, writer: Writer
) -> None:
    dice = random.Random(11)
    times: defaultdict[str, list[int]] = defaultdict(list)
    failed: defaultdict[str, Counter[str]] = defaultdict(Counter)
    await ask_each(writer, grant(100_000))
    asked = query(database)
    hour_us = asked.starts_us[2]
    for number in range(1, 41):
        key_id, took_ms = dice.choice(KEYS), dice.randrange(50, 60_000)
        times[key_id].append(took_ms)
        done = replace(settle(number, completion=1), first_token_ms=took_ms // 10, duration_ms=took_ms)
        await ask_each(writer, reserve(number, key=key_id), done)
        if number == 20:
            sum_up(database)
        reason, is_cut = dice.choice([("RATE_LIMITED", False), ("UPSTREAM_FAILED", True), ("UPSTREAM_FAILED", False)])
        failed[key_id][reason] += 1
        fail(database, Failures(ACCOUNT, hour_us, key_id, "forte", reason, is_cut, 1))
    for _ in range(2):
        found = report(database, asked)
        assert_is_of(found.total, [each for key in KEYS for each in times[key]], sum(failed.values(), Counter()))
        for key in found.keys:
            assert_is_of(key, times[key.key_id], failed[key.key_id])
        assert [key.key_id for key in found.keys] == sorted(
            KEYS, key=lambda key: (-failed[key].total(), -len(times[key]))
        )
        [forte] = found.classes
        assert replace(forte, class_id="") == found.total
        assert sum(part.charged_requests for part in found.parts) == 40
        assert {part.started_at_us for part in found.parts} <= {hour_us, hour_us + HOUR_US}
        of_one = report(database, replace(asked, key_ids=KEYS[:1]))
        assert of_one.keys == [key for key in found.keys if key.key_id == KEYS[0]]
        assert replace(of_one.total, key_id=KEYS[0]) == of_one.keys[0]
        sum_up(database)


def assert_is_of(found: ChatOutcomes, times_ms: list[int], failed: Counter[str]) -> None:
    assert found.charged_requests == len(times_ms)
    assert found.duration == percentiles_of(Counter(map(bucket_of, times_ms)))
    assert found.first_token == percentiles_of(Counter(bucket_of(each // 10) for each in times_ms))
    assert {each.reason: each.requests for each in found.failures} == failed


def test_failures_are_told_by_reason_the_most_frequent_first_and_how_many_answers_were_cut(database: Database) -> None:
    asked = query(database)
    hour_us = asked.starts_us[2]
    fail(
        database,
        Failures(ACCOUNT, hour_us, "key_a", "", "REQUEST_INVALID", False, 1),
        Failures(ACCOUNT, hour_us - HOUR_US, "key_a", "forte", "UPSTREAM_FAILED", False, 2),
        Failures(ACCOUNT, hour_us, "key_b", "forte", "UPSTREAM_FAILED", True, 3),
        Failures(ACCOUNT, asked.start_us - HOUR_US, "key_b", "forte", "SATURATED", False, 9),
        Failures("acct_bbbbbbbbbbbbbbbb", hour_us, "key_a", "forte", "RATE_LIMITED", False, 7),
    )
    found = report(database, asked)
    assert found.total == ChatOutcomes(
        0, NOTHING, NOTHING, [FailedChats("UPSTREAM_FAILED", 5, 3), FailedChats("REQUEST_INVALID", 1, 0)]
    )
    assert [(each.class_id, len(each.failures)) for each in found.classes] == [("", 1), ("forte", 1)]
    assert [each.started_at_us for each in found.parts] == [hour_us - HOUR_US, hour_us]


def test_only_so_many_keys_are_told_apart(database: Database) -> None:
    asked = query(database)
    fail(
        database,
        *(
            Failures(ACCOUNT, asked.starts_us[2], f"key_{number:03}", "forte", "SATURATED", False, number)
            for number in range(1, KEYS_MOST + 6)
        ),
    )
    found = report(database, asked)
    assert [key.key_id for key in found.keys] == [f"key_{number:03}" for number in range(KEYS_MOST + 5, 5, -1)]
    assert found.total.failures[0].requests == sum(range(1, KEYS_MOST + 6))


def test_a_period_that_is_none_is_refused(database: Database) -> None:
    asked = query(database)
    first, second, *_ = asked.starts_us
    for wrong in ({"starts_us": (second, first)}, {"starts_us": (first, first)}, {"starts_us": (first + 1,)}):
        with pytest.raises(LegatoError) as refusal:
            report(database, replace(asked, **wrong))
        assert refusal.value.reason is Reason.REQUEST_INVALID
