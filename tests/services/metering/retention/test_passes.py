"""Months that are closed, archived and pruned: balances, statements and the audit stay right."""

import gzip
import time
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.process import failpoints
from services.chassis.telemetry.log import Log
from services.metering.account_audits import AccountAudits
from services.metering.auditor import audit, find_violations_of
from services.metering.batch import Writer
from services.metering.ledger.months import RetentionPolicy
from services.metering.ledger.prices import Prices
from services.metering.ledger.spend import SetSpendLimits, SpendLimits
from services.metering.reports import BEGINNING, list_credits
from services.metering.retention.archive import ArchiveWrong, read_archive
from services.metering.retention.closed_months import audit_months, list_closings
from services.metering.retention.passes import LeaseLost, Retention
from services.metering.statements import (
    StatementQuery,
    find_request,
    list_entries,
    list_requests,
)
from services.metering.store.reports import read_balances
from services.metering.store.tables import holds, ledger, retention, usage_hours
from tests.services.metering.samples import (
    ACCOUNT,
    ask,
    ask_each,
    checkpoint,
    grant,
    request_id,
    reserve,
    settle,
    sweep,
    void,
)
from tests.support.database_time import DatabaseTime

OTHER = "acct_bbbbbbbbbbbbbbbb"
KEEPS_ALL = RetentionPolicy(holds_days=0)
# Of `live_for_months`, the last month with chats is kept.
PRUNES = RetentionPolicy(holds_days=2, ledger_months=2, usage_months=1)
EVERYTHING = StatementQuery(ACCOUNT, None, None, newest_first=False, size=100, position=None)


@pytest.fixture
def database_time(monkeypatch: pytest.MonkeyPatch) -> DatabaseTime:
    return DatabaseTime(monkeypatch)


@pytest.fixture
async def hasty(database: Database, prices: Prices, log: Log) -> AsyncIterator[Writer]:
    """Its holds are overdue at once."""
    writer = Writer(database, prices, -1.0, log)
    yield writer
    await writer.close()


def retaining(database: Database, log: Log, policy: RetentionPolicy = KEEPS_ALL) -> Retention:
    return Retention(database, policy, 3600.0, log, pause_s=0)


def count(database: Database, table: sa.Table) -> int:
    with database.transaction(writes=False) as connection:
        return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def balance(database: Database, account: str = ACCOUNT) -> int:
    with database.transaction(writes=False) as connection:
        return read_balances(connection, [account])[0].balance_nanos


async def chats(writer: Writer, first: int) -> None:
    """A grant, two chats that are charged, one that is not, and one of another account."""
    await ask_each(
        writer, grant(1_000, grant_id=f"g{first}"), grant(500, account=OTHER, grant_id=f"o{first}"),
        reserve(first), settle(first, prompt=1, completion=3), reserve(first + 1), settle(first + 1, completion=5),
        reserve(first + 2), void(first + 2), reserve(first + 3, account=OTHER),
        settle(first + 3, completion=1, account=OTHER),
    )  # fmt: skip


async def live_for_months(database: Database, writer: Writer, log: Log, database_time: DatabaseTime) -> None:
    """Three months with chats, one without, and the first days of the next."""
    for first in (1, 11, 21):
        await retaining(database, log).create_partitions()
        database_time.begin_month()
        await chats(writer, first)
    await retaining(database, log).create_partitions()
    database_time.begin_month()
    database_time.begin_month()


async def all_violations(database: Database) -> list[str]:
    with database.transaction(writes=False) as connection:
        of_accounts = [line for account in (ACCOUNT, OTHER) for line in find_violations_of(connection, account)]
    return await audit(database) + await audit_months(database, None) + of_accounts


async def test_a_month_is_closed_once_it_is_over_and_the_audit_goes_on_from_there(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, log_text: Callable[[], str]
) -> None:
    closer = retaining(database, log)
    database_time.begin_month()
    await chats(writer, 1)
    assert await closer.run_pass()
    assert closer.closed_months == 0
    for first in (11, 21):
        database_time.begin_month()
        await chats(writer, first)
        assert await audit(database) == []
    database_time.begin_month()
    await closer.run_pass()
    closed = (await list_closings(database)).closings
    assert [closing.entries for closing in closed if closing.entries] == [5, 5, 5]
    assert closed[-1].balance_nanos == 3 * (1_500 - 32 - 50 - 10)
    assert log_text().count("month.closed") == len(closed)
    assert closed[-1].closing_hash in log_text()
    await chats(writer, 31)
    assert await all_violations(database) == []
    found = (await AccountAudits(database).audit(ACCOUNT)).found
    assert found is not None
    account_audit = found.audit
    assert (account_audit.entries, account_audit.balance_nanos) == (4 * 3, balance(database))


async def test_what_is_pruned_is_not_needed_for_balances_receipts_and_repeats(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime
) -> None:
    await live_for_months(database, writer, log, database_time)
    await chats(writer, 31)
    before_nanos = balance(database)
    before = await list_entries(database, EVERYTHING)
    pruner = retaining(database, log, PRUNES)
    await pruner.run_pass()
    assert pruner.pruned["holds"] == 3 * 4
    assert count(database, ledger) == 10
    assert await audit(database) == []
    assert await audit_months(database, None) == []

    kept = await list_entries(database, EVERYTHING)
    assert kept.entries == before.entries[-6:]
    newest_first = await list_entries(database, replace(EVERYTHING, newest_first=True))
    assert newest_first.entries == kept.entries[::-1]
    assert [each.balance_nanos for each in (await list_credits(database, ACCOUNT, BEGINNING, 100)).entries][-1] == (
        before_nanos
    )
    # The third month's holds are gone, its receipts are not.
    listed = await list_requests(database, replace(EVERYTHING, newest_first=True))
    assert [(each.hold.request_id, each.hold.charged_nanos) for each in listed.charged] == [
        (request_id(32), 50), (request_id(31), 32), (request_id(22), 50), (request_id(21), 32),
    ]  # fmt: skip
    assert all(receipt.price is not None for receipt in listed.charged)
    found = await find_request(database, ACCOUNT, request_id(21))
    assert found is not None
    assert (found.hold.prompt_tokens, found.hold.completion_tokens, found.hold.charged_nanos) == (1, 3, 32)

    for number in (1, 11, 21, 31):
        assert (await ask(writer, grant(1_000, grant_id=f"g{number}"))).balance_nanos == before_nanos
    with pytest.raises(LegatoError, match="already used for another"):
        await ask(writer, grant(7, grant_id="g1"))
    with pytest.raises(LegatoError, match="cannot be settled"):
        await ask(writer, settle(1, completion=3))
    assert balance(database) == before_nanos
    await chats(writer, 41)
    assert await all_violations(database) == []


async def test_a_period_that_was_pruned_is_refused_and_says_so(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime
) -> None:
    await live_for_months(database, writer, log, database_time)
    closed = retaining(database, log, PRUNES)
    await closed.run_pass()
    months = (await list_closings(database)).closings
    with pytest.raises(LegatoError, match="are not kept"):
        await list_entries(database, replace(EVERYTHING, start_us=months[0].month_us))
    since = await list_entries(database, replace(EVERYTHING, start_us=months[2].month_us))
    assert since.entries[0].balance_nanos == months[1].balance_nanos - 2 * (500 - 10) + 1_000
    with pytest.raises(LegatoError, match="were pruned"):
        await audit_months(database, months[0].month)


async def test_sums_of_usage_stay_exact_though_its_hours_are_summed_up(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime
) -> None:
    await live_for_months(database, writer, log, database_time)
    for hours in range(3):
        await ask_each(writer, reserve(100 + hours), settle(100 + hours, completion=1))
        database_time.pass_s(3600)
    await retaining(database, log).create_partitions()
    database_time.begin_month()
    database_time.begin_month()
    middle_us = (await list_entries(database, EVERYTHING)).entries[-2].stored.entry.recorded_at_us
    since = replace(EVERYTHING, start_us=middle_us)
    before = (await list_entries(database, since)).entries
    rows = count(database, usage_hours)
    await retaining(database, log, RetentionPolicy(usage_months=1)).run_pass()
    assert count(database, usage_hours) == rows - 2
    assert (await list_entries(database, since)).entries == before
    total = await ask(writer, SetSpendLimits(ACCOUNT, "", SpendLimits(total_nanos=10**9)))
    assert total.total_spent_nanos == 3 * (32 + 50) + 30
    assert await all_violations(database) == []


async def test_archive_is_what_the_closing_has_the_hash_of(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, tmp_path: Path
) -> None:
    await live_for_months(database, writer, log, database_time)
    await retaining(database, log, PRUNES._replace(archive=tmp_path / "archive")).run_pass()
    first, *_ = [closing for closing in (await list_closings(database)).closings if closing.entries]
    file = tmp_path / "archive" / f"ledger-{first.month}.jsonl.gz"
    assert sha256(gzip.decompress(file.read_bytes())).hexdigest() == first.entries_hash
    month, digest = read_archive(file)
    assert (month, digest.entries, digest.hexdigest()) == (first.month, 5, first.entries_hash)
    assert (file.stat().st_mode & 0o777, [each.name for each in file.parent.glob(".*")]) == (0o600, [])
    file.write_bytes(b"nothing of ours")
    with pytest.raises(ArchiveWrong):
        read_archive(file)


async def test_late_settlement_after_the_closing_is_booked_in_the_open_month(
    database: Database, hasty: Writer, log: Log, database_time: DatabaseTime
) -> None:
    """The hold of a lost edge is never pruned, so what it delivered is still charged, once."""
    database_time.begin_month()
    await ask_each(hasty, grant(1_000), reserve(1), checkpoint(1, completion=2), sweep(1))
    await ask_each(hasty, reserve(2), checkpoint(2, completion=9), sweep(2))
    database_time.begin_month()
    closer = retaining(database, log, PRUNES)
    await closer.run_pass()
    [closing] = [each for each in (await list_closings(database)).closings if each.entries]
    assert await all_violations(database) == []
    await ask_each(hasty, settle(1, completion=5), settle(1, completion=5))
    # A report said more: its charge stands, and nothing is booked.
    await ask_each(hasty, settle(2, completion=1))
    assert balance(database) == 1_000 - 50 - 90
    late = (await list_entries(database, EVERYTHING)).entries[-1].stored.entry
    assert (late.kind, late.customer_nanos, late.requests) == ("late_charge", -30, 0)
    assert late.hour_us >= closing.ends_us
    assert await all_violations(database) == []
    # Of the first charges nothing is left to compare with.
    database_time.begin_month()
    await closer.run_pass()
    database_time.begin_month()
    await closer.run_pass()
    assert count(database, ledger) == 1
    assert await all_violations(database) == []


async def test_process_keeps_its_lease_during_an_audit_that_takes_longer(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.metering.retention.passes.RENEW_AFTER_S", 0.01)
    await chats(writer, 1)
    database_time.begin_month()
    database_time.begin_month()
    first = retaining(database, log)
    audited, has_renewed = first._audit, list[bool]()

    def audit_slowly() -> list[str]:
        with database.transaction(writes=True) as connection:
            connection.execute(sa.update(retention).values(lease_until_us=0))
        deadline_s = time.monotonic() + 20
        while not is_leased(database) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        has_renewed.append(is_leased(database))
        return audited()

    monkeypatch.setattr(first, "_audit", audit_slowly)
    assert await first.run_pass()
    assert has_renewed == [True]
    assert first.closed_months > 0


def is_leased(database: Database) -> bool:
    with database.transaction(writes=False) as connection:
        return bool(connection.scalar(sa.select(retention.c.lease_until_us)))


async def test_month_with_a_violation_is_not_closed(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, log_text: Callable[[], str]
) -> None:
    await chats(writer, 1)
    with database.transaction(writes=True) as connection:
        connection.exec_driver_sql("UPDATE accounts SET balance_nanos = balance_nanos + 1")
    database_time.begin_month()
    database_time.begin_month()
    closer = retaining(database, log, PRUNES)
    await closer.run_pass()
    assert (closer.closed_months, closer.months_to_close > 0) == (0, True)
    assert "closing.refused" in log_text()
    assert count(database, ledger) == 5


@pytest.mark.parametrize(
    ("table", "change", "found"),
    [
        ("closings", "UPDATE closings SET balance_nanos = balance_nanos + 1", "changed since it was made"),
        ("account_closings", "UPDATE account_closings SET balance_nanos = balance_nanos + 1", "accounts have changed"),
        ("account_closings", f"DELETE FROM account_closings WHERE account_id = '{OTHER}'", "accounts have changed"),
        ("ledger", "UPDATE ledger SET reason = 'another'", "its entries have changed"),
        ("ledger", f"DELETE FROM ledger WHERE request_id = '{request_id(1)}'", "of 5 entries, 4 were found"),
    ],
)
async def test_change_of_a_closed_month_is_refused_and_found(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, table: str, change: str, found: str
) -> None:
    await chats(writer, 1)
    database_time.begin_month()
    database_time.begin_month()
    await retaining(database, log).run_pass()
    with pytest.raises(sa.exc.DBAPIError, match="append-only"), database.transaction(writes=True) as connection:
        connection.exec_driver_sql(change)
    with database.transaction(writes=True) as connection:
        if database.is_sqlite:
            for kind in ("update", "delete"):
                connection.exec_driver_sql(f"DROP TRIGGER {table}_refuses_{kind}")
        else:
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.exec_driver_sql(change)
    assert any(found in line for line in await all_violations(database))
    pruner = retaining(database, log, PRUNES)
    if table == "ledger":
        # What cannot be proved is not deleted.
        rows = count(database, ledger)
        database_time.begin_month()
        await pruner.prune_ledger()
        assert count(database, ledger) == rows


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
    before_nanos, policy = balance(database), PRUNES._replace(archive=tmp_path)
    kill_at(place)
    with pytest.raises(Killed):
        await retaining(database, log, policy).run_pass()
    assert await audit(database) == []
    # Its lease is still another's.
    assert not await retaining(database, log, policy).run_pass()
    database_time.pass_days(1)
    assert await retaining(database, log, policy).run_pass()
    closed = (await list_closings(database)).closings
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
    assert (await list_closings(database)).closings == []
    monkeypatch.setattr(failpoints, "hit", hit)
    assert await next_one.run_pass()
    assert len((await list_closings(database)).closings) == 4
    assert await all_violations(database) == []


async def test_an_archive_is_never_replaced_by_one_that_is_not_what_was_closed(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, tmp_path: Path
) -> None:
    """A process that stood still may come to entries that another has archived and deleted."""
    await live_for_months(database, writer, log, database_time)
    folder = tmp_path / "archive"
    late = retaining(database, log, PRUNES._replace(archive=folder))
    assert await late.run_pass()
    archived = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert archived
    with database.transaction(writes=True) as connection:
        connection.execute(sa.update(retention).values(ledger_pruned_before_us=0))
    await late.prune_ledger()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == archived


async def test_what_a_killed_process_left_of_an_archive_is_removed(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, tmp_path: Path
) -> None:
    await live_for_months(database, writer, log, database_time)
    await retaining(database, log).run_pass()
    [month, *_] = [closing.month for closing in (await list_closings(database)).closings]
    left = tmp_path / f".ledger-{month}.jsonl.gz.4711"
    left.write_bytes(b"half of it")
    database_time.pass_days(1)
    assert await retaining(database, log, PRUNES._replace(archive=tmp_path)).run_pass()
    assert not left.exists()
