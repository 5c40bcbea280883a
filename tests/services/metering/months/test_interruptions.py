"""Passes of retention whose process is killed, stands still, or loses its lease to another."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.database import Database
from services.chassis.process import failpoints
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import audit, find_violations
from services.metering.credit.batch import Writer
from services.metering.credit.store.tables import holds, ledger, retention
from services.metering.months.archive import ArchiveWriter, ArchiveWrong
from services.metering.months.passes import LeaseLost
from tests.services.metering.months.used_ledger import (
    PRUNES,
    all_violations,
    balance,
    chats,
    count,
    live_for_months,
    retaining,
)
from tests.services.metering.reading import list_closings
from tests.support.database_time import DatabaseTime


class Killed(BaseException):
    pass


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Ends what runs at a failpoint, as the death of its process would."""
    wanted: list[str] = []

    def hit(name: str, *deeds: Any) -> None:
        if name in wanted:
            wanted.remove(name)
            raise Killed

    monkeypatch.setattr(failpoints, "hit", hit)
    yield wanted.append
    assert wanted == []


PLACES = [
    "metering.closing.begun", "metering.closing.drafted", "metering.closing.closed",
    "metering.pruning.archived", "metering.pruning.marked", "metering.pruning.deleted",
    "metering.pruning.summed", "metering.pruning.holds",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
async def test_pass_that_is_killed_loses_nothing_and_books_nothing_twice(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, kill_at: Callable[[str], None],
    place: str, tmp_path: Path,
) -> None:  # fmt: skip
    await live_for_months(database, writer, log, database_time)
    before_nanos, policy = balance(database), replace(PRUNES, retention_archive=tmp_path)
    kill_at(place)
    with pytest.raises(Killed):
        await retaining(database, log, policy).run_pass()
    assert await audit(database) == []
    # Its lease is still another's.
    assert not await retaining(database, log, policy).run_pass()
    database_time.pass_days(1)
    assert await retaining(database, log, policy).run_pass()
    closed = await list_closings(database)
    assert [closing.entries for closing in closed if closing.entries] == [5, 5, 5]
    assert count(database, ledger) == 5
    assert count(database, holds) == 0
    assert balance(database) == before_nanos == sum(closing.balance_nanos for closing in closed[-1:]) - 3 * 490
    await chats(writer, 31)
    assert await all_violations(database) == []


async def test_two_processes_do_not_prune_at_once(database: Database, writer: Writer, log: Log) -> None:
    first, second = retaining(database, log), retaining(database, log)
    assert await first.run_pass()
    assert not await second.run_pass()
    assert await first.run_pass()
    with database.transaction(writes=True) as connection:
        connection.execute(sa.update(retention).values(lease_until_us=0))
    assert await second.run_pass()


async def test_a_process_that_lost_its_lease_writes_nothing_more(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    await live_for_months(database, writer, log, database_time)
    stopped, next_one = retaining(database, log), retaining(database, log)
    hit = failpoints.hit

    def stand_still(name: str, *deeds: Any) -> None:
        if name == "metering.closing.drafted":
            with database.transaction(writes=True) as connection:
                connection.execute(sa.update(retention).values(lease_holder="another", lease_until_us=0))
        hit(name, *deeds)

    monkeypatch.setattr(failpoints, "hit", stand_still)
    with pytest.raises(LeaseLost):
        await stopped.run_pass()
    assert await list_closings(database) == []
    monkeypatch.setattr(failpoints, "hit", hit)
    assert await next_one.run_pass()
    assert len(await list_closings(database)) == 4
    assert await all_violations(database) == []


async def test_an_archive_is_never_replaced_by_one_that_is_not_what_was_closed(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, tmp_path: Path
) -> None:
    """A process that stood still may come to entries that another has archived and deleted."""
    await live_for_months(database, writer, log, database_time)
    folder = tmp_path / "archive"
    late = retaining(database, log, replace(PRUNES, retention_archive=folder))
    assert await late.run_pass()
    archived = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert archived
    with database.transaction(writes=True) as connection:
        connection.execute(sa.update(retention).values(ledger_pruned_before_us=0))
    await late.prune_ledger()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == archived


async def test_a_process_whose_archive_was_removed_by_its_successor_stops_and_any_other_loss_is_an_error(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    await live_for_months(database, writer, log, database_time)
    await retaining(database, log).run_pass()
    entries, finish = count(database, ledger), ArchiveWriter.finish

    def lose(writer: ArchiveWriter) -> Path:
        file = finish(writer)
        file.unlink()
        return file

    def lose_lease_too(writer: ArchiveWriter) -> Path:
        with database.transaction(writes=True) as connection:
            connection.execute(sa.update(retention).values(lease_holder="another", lease_until_us=2**62))
        return lose(writer)

    folder = tmp_path / "archive"
    database_time.pass_days(1)
    for loses, expected in ((lose, ArchiveWrong), (lose_lease_too, LeaseLost)):
        monkeypatch.setattr(ArchiveWriter, "finish", loses)
        with database.transaction(writes=True) as connection:
            connection.execute(sa.update(retention).values(lease_until_us=0))
        with pytest.raises(expected):
            await retaining(database, log, replace(PRUNES, retention_archive=folder)).run_pass()
    assert count(database, ledger) == entries
    assert [file.name for file in folder.iterdir()] == []


async def test_what_a_killed_process_left_of_an_archive_is_removed(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, tmp_path: Path
) -> None:
    await live_for_months(database, writer, log, database_time)
    await retaining(database, log).run_pass()
    [month, *_] = [closing.month for closing in await list_closings(database)]
    left = tmp_path / f".ledger-{month}.jsonl.gz.4711"
    left.write_bytes(b"half of it")
    database_time.pass_days(1)
    assert await retaining(database, log, replace(PRUNES, retention_archive=tmp_path)).run_pass()
    assert not left.exists()


async def test_process_keeps_its_lease_during_an_audit_that_takes_longer(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.metering.months.passes.RENEW_AFTER_S", 0.01)
    await chats(writer, 1)
    database_time.begin_month()
    database_time.begin_month()
    first = retaining(database, log)
    has_renewed: list[bool] = []

    def audit_slowly(snapshot: Any) -> list[str]:
        with database.transaction(writes=True) as connection:
            connection.execute(sa.update(retention).values(lease_until_us=0))
        deadline_s = time.monotonic() + 20
        while not is_leased(database) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        has_renewed.append(is_leased(database))
        return find_violations(snapshot)

    monkeypatch.setattr("services.metering.months.passes.find_violations", audit_slowly)
    assert await first.run_pass()
    assert has_renewed == [True]
    assert first.closed_months > 0


def is_leased(database: Database) -> bool:
    with database.transaction(writes=False) as connection:
        return bool(connection.scalar(sa.select(retention.c.lease_until_us)))
