"""The audit log is pruned by policy, and shows that its oldest events were removed otherwise."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
import sqlalchemy as sa

from services.auth.audit.rules.retention import AuditRetention
from services.auth.core.audit_log import AuditLog
from services.auth.core.peppers import Peppers
from services.auth.core.store.audit import list_events
from services.auth.core.store.tables import audit_events
from services.chassis.database import portions
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from tests.support.fakes import FakeClock

DAY_S = 86_400

Retaining = Callable[..., AuditRetention]


@pytest.fixture
def audit(peppers: Peppers, clock: FakeClock) -> AuditLog:
    return AuditLog(peppers, clock)


@pytest.fixture
def retaining(database: Database, audit: AuditLog, clock: FakeClock, log: Log) -> Retaining:
    def make(kept_days: int = 400) -> AuditRetention:
        return AuditRetention(database, audit, clock, log, kept_days=kept_days, pause_s=0)

    return make


def append(database: Database, audit: AuditLog, count: int) -> None:
    with database.transaction(writes=True) as connection:
        for _ in range(count):
            audit.append(connection, "key.created", account_id="acct_aaaaaaaaaaaaaaaa")


def event_nos(database: Database) -> list[int]:
    with database.transaction(writes=False) as connection:
        return sorted(each.event.event_no for each in list_events(connection, None, 10_000))


def broken(database: Database, audit: AuditLog) -> list[int]:
    with database.transaction(writes=False) as connection:
        return audit.verify(connection)[1]


def change(database: Database, statement: str) -> None:
    with database.transaction(writes=True) as connection:
        connection.execute(sa.text(statement))


async def test_events_are_kept_for_as_long_as_the_policy_says(
    database: Database, audit: AuditLog, clock: FakeClock, retaining: Retaining
) -> None:
    append(database, audit, 3)
    clock.advance(200 * DAY_S)
    append(database, audit, 2)
    # The month of the first ones has not been over for 400 days.
    clock.advance((400 - 200 + 10) * DAY_S)
    retention = retaining()
    await retention.run_pass()
    assert event_nos(database) == [1, 2, 3, 4, 5]
    clock.advance(10 * DAY_S)
    await retention.run_pass()
    assert event_nos(database) == [4, 5]
    assert retention.pruned == 3
    assert broken(database, audit) == []
    append(database, audit, 1)
    assert event_nos(database) == [4, 5, 6]
    assert broken(database, audit) == []


async def test_a_log_of_which_all_is_old_is_still_a_chain(
    database: Database, audit: AuditLog, clock: FakeClock, retaining: Retaining
) -> None:
    append(database, audit, 2)
    clock.advance(800 * DAY_S)
    await retaining().run_pass()
    assert event_nos(database) == []
    assert broken(database, audit) == []
    append(database, audit, 1)
    assert event_nos(database) == [3]
    assert broken(database, audit) == []


async def test_without_a_policy_nothing_is_pruned(
    database: Database, audit: AuditLog, clock: FakeClock, retaining: Retaining
) -> None:
    append(database, audit, 2)
    clock.advance(timedelta(days=20_000).total_seconds())
    await retaining(kept_days=0).run_pass()
    assert event_nos(database) == [1, 2]


async def test_no_transaction_deletes_more_than_a_portion(
    database: Database,
    audit: AuditLog,
    clock: FakeClock,
    retaining: Retaining,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portions, "PORTION_MOST", 4)
    append(database, audit, 10)
    clock.advance(800 * DAY_S)
    retention, left = retaining(), []
    write = database.write

    async def counted(*arguments: object) -> object:
        result = await write(*arguments)  # type: ignore[arg-type, var-annotated]
        left.append(len(event_nos(database)))
        return result

    monkeypatch.setattr(database, "write", counted)
    await retention.run_pass()
    # The first transaction moves the start of the log, and the last finds nothing.
    assert left == [10, 6, 2, 0, 0]


async def test_a_pass_that_ends_half_way_is_finished_by_the_next(
    database: Database, audit: AuditLog, clock: FakeClock, retaining: Retaining
) -> None:
    append(database, audit, 5)
    clock.advance(800 * DAY_S)
    with database.transaction(writes=True) as connection:
        audit.prune_until(connection, 5)
        connection.execute(audit_events.delete().where(audit_events.c.event_no <= 2))
    assert broken(database, audit) == []
    await retaining().run_pass()
    assert event_nos(database) == []
    assert broken(database, audit) == []


async def test_replicas_that_prune_at_the_same_time_delete_each_event_once(
    database: Database,
    database_url: str,
    audit: AuditLog,
    clock: FakeClock,
    log: Log,
    retaining: Retaining,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portions, "PORTION_MOST", 3)
    append(database, audit, 20)
    clock.advance(800 * DAY_S)
    append(database, audit, 1)
    other_database = Database(database_url, "auth")
    try:
        other = AuditRetention(other_database, audit, clock, log, kept_days=400, pause_s=0)
        one = retaining()
        await asyncio.gather(one.run_pass(), other.run_pass())
        # One may have found nothing while the other deleted it.
        await one.run_pass()
    finally:
        other_database.close()
    assert event_nos(database) == [21]
    assert one.pruned + other.pruned == 20
    assert broken(database, audit) == []


@pytest.mark.parametrize(
    ("is_pruned", "tampering"),
    [
        (False, "DELETE FROM audit_events WHERE event_no = (SELECT min(event_no) FROM audit_events)"),
        (True, "DELETE FROM audit_events WHERE event_no = (SELECT min(event_no) FROM audit_events)"),
        (False, "UPDATE audit_head SET pruned_no = 1"),
        (True, "UPDATE audit_head SET pruned_no = pruned_no + 1"),
        (True, "UPDATE audit_head SET pruned_no = 0, pruned_code = NULL"),
    ],
)
async def test_the_oldest_events_cannot_be_removed_unnoticed(
    database: Database, audit: AuditLog, clock: FakeClock, retaining: Retaining, is_pruned: bool, tampering: str
) -> None:
    append(database, audit, 3)
    if is_pruned:
        clock.advance(800 * DAY_S)
        append(database, audit, 3)
        await retaining().run_pass()
    assert broken(database, audit) == []
    change(database, tampering)
    assert broken(database, audit)


async def test_a_log_that_was_changed_is_not_pruned(
    database: Database, audit: AuditLog, clock: FakeClock, retaining: Retaining
) -> None:
    append(database, audit, 3)
    clock.advance(800 * DAY_S)
    # Making events old does not have them removed.
    append(database, audit, 1)
    change(database, "UPDATE audit_events SET occurred_at_us = 0 WHERE event_no = 4")
    await retaining().run_pass()
    assert event_nos(database) == [1, 2, 3, 4]
    assert broken(database, audit) == [4]
