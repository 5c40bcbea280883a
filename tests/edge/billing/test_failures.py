"""What metering is told of chats that failed."""

import json
from dataclasses import replace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from edge.billing import failures as failures_module
from edge.billing.failures import CLIENT_GONE, FailureCounts
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.telemetry.log import Log
from services.metering.reports.store.tables import usage_days
from tests.edge.metering_harness import ANN, MeteringHarness
from tests.support.fakes import FakeClock
from tests.support.waiting import until

OTHER_KEY = replace(ANN, key_id="key_other")


async def connected(harness: MeteringHarness) -> None:
    await until(lambda: harness.replicas.count_usable() == 1)


async def stored(harness: MeteringHarness) -> list[tuple[Any, ...]]:
    """Returns what metering has counted, without the hours: chats by reason, and those whose answer was cut."""
    row = usage_days.c
    is_hour = (row.of_key == sa.true(), row.span == "hour")
    query = sa.select(row.account_id, row.key_id, row.class_id, row.failures).where(*is_hour)
    rows = await harness._database.read(lambda connection: connection.execute(query).all())
    return sorted((*key, reason, *counts) for *key, failures in rows for reason, counts in json.loads(failures).items())


async def test_failures_are_told_by_key_class_and_reason_and_each_once(metering_harness: MeteringHarness) -> None:
    failures = metering_harness.metering.failures
    await connected(metering_harness)
    for _ in range(3):
        failures.count(ANN, "forte", Reason.RATE_LIMITED)
    failures.count(OTHER_KEY, "", Reason.REQUEST_INVALID)
    failures.count(ANN, "forte", CLIENT_GONE, is_cut=True)
    for _ in range(2):
        await failures.report()
    failures.count(ANN, "forte", Reason.RATE_LIMITED)
    await failures.report()
    assert await stored(metering_harness) == [
        ("acct_ann", "key_ann", "forte", "CLIENT_GONE", 1, 1),
        ("acct_ann", "key_ann", "forte", "RATE_LIMITED", 4, 0),
        ("acct_ann", "key_other", "", "REQUEST_INVALID", 1, 0),
    ]


async def test_what_a_metering_that_is_away_was_not_told_is_told_later(metering_harness: MeteringHarness) -> None:
    failures = metering_harness.metering.failures
    await connected(metering_harness)
    await metering_harness.shut()
    await until(lambda: not metering_harness.replicas.count_usable())
    for _ in range(2):
        failures.count(ANN, "forte", Reason.UNAVAILABLE)
        await failures.report()
    await metering_harness.open()
    await connected(metering_harness)
    await failures.report()
    assert not failures.counts
    assert await stored(metering_harness) == [("acct_ann", "key_ann", "forte", "UNAVAILABLE", 2, 0)]


class OlderMetering:
    """A replica that does not know the method."""

    def for_account(self, account_id: str) -> "OlderMetering":
        return self

    def call(self, method: str, *question: Any) -> Any:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence.verbatim("There is no such method."))


async def test_an_earlier_metering_is_not_told_again(log: Log) -> None:
    failures = FailureCounts(cast(Any, OlderMetering()), FakeClock(), log)
    failures.count(ANN, "forte", Reason.SATURATED)
    await failures.report()
    assert not failures.counts


async def test_memory_is_bounded_and_every_hour_counts_by_itself(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures_module, "COUNTS_MOST", 2)
    clock = FakeClock()
    failures = FailureCounts(cast(Any, OlderMetering()), clock, log)
    for _ in range(2):
        for _ in range(2):
            failures.count(ANN, "forte", Reason.SATURATED)
        clock.advance(3600)
    failures.count(OTHER_KEY, "forte", Reason.SATURATED)
    assert list(failures.counts.values()) == [2, 2]
    assert len({failure.hour_s for failure in failures.counts}) == 2


async def test_what_is_counted_after_too_many_kinds_is_told(
    metering_harness: MeteringHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures_module, "COUNTS_MOST", 1)
    failures = metering_harness.metering.failures
    await connected(metering_harness)
    for principal in (ANN, OTHER_KEY, ANN):
        failures.count(principal, "forte", Reason.SATURATED)
    await failures.report()
    failures.count(OTHER_KEY, "forte", Reason.SATURATED)
    await failures.report()
    assert await stored(metering_harness) == [
        ("acct_ann", "key_ann", "forte", "SATURATED", 2, 0),
        ("acct_ann", "key_other", "forte", "SATURATED", 1, 0),
    ]
