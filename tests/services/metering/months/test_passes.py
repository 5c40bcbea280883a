"""Months that are closed, archived and pruned: balances, statements and the audit stay right."""

import gzip
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from services.chassis.database.clock import read_now_us
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log
from services.metering.audit.account_audits import AccountAudits
from services.metering.audit.auditor import audit
from services.metering.audit.closed_months import audit_months
from services.metering.credit.batch import Writer
from services.metering.credit.ledger.spend import SetSpendLimits, SpendLimits
from services.metering.credit.store.tables import account_hours, holds, ledger, usage_hours
from services.metering.months.archive import ArchiveWrong, read_archive
from services.metering.reports.store.failures import Failures, add_failures
from services.metering.reports.store.model_sums import GROUPS
from services.metering.reports.store.tables import usage_days
from services.metering.settings import MeteringSettings
from services.metering.statements.credit_history import BEGINNING
from services.metering.statements.rules import StatementQuery
from tests.services.metering.months.used_ledger import (
    OTHER,
    PRUNES,
    all_violations,
    balance,
    chats,
    count,
    live_for_months,
    retaining,
)
from tests.services.metering.reading import find_request, list_closings, list_credits, list_entries, list_requests
from tests.services.metering.reports.store.test_days import counted
from tests.services.metering.reports.test_models import report
from tests.services.metering.samples import (
    ACCOUNT,
    KEY,
    ask,
    ask_each,
    checkpoint,
    grant,
    request_id,
    reserve,
    settle,
    sweep,
)
from tests.support.database_time import DatabaseTime

EVERYTHING = StatementQuery(ACCOUNT, None, None, newest_first=False, size=100, position=None)


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
    closed = await list_closings(database)
    assert [closing.entries for closing in closed if closing.entries] == [5, 5, 5]
    assert closed[-1].balance_nanos == 3 * (1_500 - 32 - 50 - 10)
    assert log_text().count("month.closed") == len(closed)
    assert closed[-1].closing_hash in log_text()
    await chats(writer, 31)
    assert await all_violations(database) == []
    found = (await AccountAudits(database).audit(ACCOUNT)).found
    assert found is not None
    assert (found.entries, found.balance_nanos) == (4 * 3, balance(database))


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
    months = await list_closings(database)
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
    middle_us = (await list_entries(database, EVERYTHING)).entries[-2].entry.recorded_at_us
    since = replace(EVERYTHING, start_us=middle_us)
    before = (await list_entries(database, since)).entries
    rows = count(database, usage_hours)
    await retaining(database, log, MeteringSettings(retention_usage_months=1)).run_pass()
    assert count(database, usage_hours) == count(database, account_hours) == rows - 2
    assert (await list_entries(database, since)).entries == before
    total = await ask(writer, SetSpendLimits(ACCOUNT, "", SpendLimits(total_nanos=10**9)))
    assert total.total_spent_nanos == 3 * (32 + 50) + 30
    assert await all_violations(database) == []


async def test_hours_of_failures_go_also_of_accounts_that_used_nothing(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime
) -> None:
    """As one whose credit is used up, and whose programs go on."""
    await live_for_months(database, writer, log, database_time)
    for _ in range(3):
        now_us = await database.read(read_now_us)
        failed = Failures("acct_cccccccccccccccc", now_us, KEY, "forte", "CREDITS_EXHAUSTED", is_cut=False, chats=7)
        await database.write(add_failures, [failed])
        database_time.pass_s(3600)
    database_time.begin_month()
    database_time.begin_month()
    await retaining(database, log, MeteringSettings(retention_usage_months=1)).run_pass()
    with database.transaction(writes=False) as connection:
        assert "hour" not in set(connection.scalars(sa.select(usage_days.c.span)))
    assert counted(database, account="acct_cccccccccccccccc").failed == 21


async def test_archive_is_what_the_closing_has_the_hash_of(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime, tmp_path: Path
) -> None:
    await live_for_months(database, writer, log, database_time)
    await retaining(database, log, replace(PRUNES, retention_archive=tmp_path / "archive")).run_pass()
    first, *_ = [closing for closing in await list_closings(database) if closing.entries]
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
    [closing] = [each for each in await list_closings(database) if each.entries]
    assert await all_violations(database) == []
    await ask_each(hasty, settle(1, completion=5), settle(1, completion=5))
    # A report said more: its charge stands, and nothing is booked.
    await ask_each(hasty, settle(2, completion=1))
    assert balance(database) == 1_000 - 50 - 90
    late = (await list_entries(database, EVERYTHING)).entries[-1].entry
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


async def test_month_without_entries_is_followed_by_others(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime
) -> None:
    # Beyond the first partition, which has two months.
    for _ in range(2):
        await retaining(database, log).create_partitions()
        database_time.begin_month()
    await chats(writer, 1)
    database_time.begin_month()
    await retaining(database, log).run_pass()
    database_time.begin_month()
    await chats(writer, 11)
    assert await all_violations(database) == []
    closer = retaining(database, log)
    await closer.run_pass()
    assert (closer.closed_months, closer.months_to_close) == (1, 0)


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


async def test_reports_of_closed_months_outlive_their_entries_and_holds(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime
) -> None:
    """They add up to the closings, too."""
    await live_for_months(database, writer, log, database_time)
    before, kept = report(database, *GROUPS), (count(database, ledger), count(database, holds))
    await retaining(database, log, PRUNES).run_pass()
    assert (count(database, ledger), count(database, holds)) < kept
    after = report(database, *GROUPS)
    assert after.rows == before.rows
    assert {row.provider for row in after.rows} == {"", "acme"}
    closed = await list_closings(database)
    assert after.total["charged_nanos"] + after.total["lost_nanos"] == sum(closing.revenue_nanos for closing in closed)
    assert await all_violations(database) == []


async def test_entries_after_all_others_were_pruned_are_reported_too(
    database: Database, writer: Writer, log: Log, database_time: DatabaseTime
) -> None:
    """SQLite gives ids once more if the last entries are gone."""
    await live_for_months(database, writer, log, database_time)
    for _ in range(3):
        database_time.begin_month()
        await retaining(database, log, PRUNES).run_pass()
    assert count(database, ledger) == 0
    before = report(database).total["granted_nanos"]
    await ask_each(writer, grant(700, grant_id="later"))
    assert await all_violations(database) == []
    assert report(database).total["granted_nanos"] == before + 700
