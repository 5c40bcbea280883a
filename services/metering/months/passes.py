"""Closes months, and prunes what the policy does not keep: in portions, one process at a time.

A process can be killed between any two steps. What makes a step count is one transaction: the row of a closing, or a
limit before which rows are gone. Everything around it can be repeated.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import uuid4

from services.chassis.database.clock import read_now_us
from services.chassis.database.database import Database
from services.chassis.database.portions import PAUSE_S, PORTION_MOST
from services.chassis.process import failpoints, memory
from services.chassis.process.passes import run_passes
from services.chassis.telemetry.log import Log
from services.metering.audit.auditor import LOGGED_MOST, audit_in_thread, find_violations
from services.metering.audit.closed_months import entry_violations
from services.metering.credit.calendar import CalendarMonth, month_of, months_before
from services.metering.credit.ledger.closings import (
    AccountClosing,
    AccountsDigest,
    Closing,
    EntriesDigest,
    RetentionState,
    close_account,
    close_month,
)
from services.metering.credit.records import DAY_US
from services.metering.credit.store import closings as closing_store
from services.metering.credit.store.closings import LEDGER_COLUMNS, EntryRange
from services.metering.months.archive import ArchiveWriter, ArchiveWrong, read_archive
from services.metering.months.store import partitions, pruning
from services.metering.reports.sums import ReportSums
from services.metering.settings import MeteringSettings
from services.metering.store import Connection

# Small enough for batches in between not to be delayed noticeably: a portion is read, or written, in milliseconds.
READ_MOST: Final = 500
WRITE_MOST: Final = PORTION_MOST
LEASE_US: Final = 600_000_000
RENEW_AFTER_S: Final = 60.0
# All holds are looked at, so not in every pass.
HOLDS_EVERY_S: Final = 6 * 3600.0
MONTHS_AHEAD: Final = 3


ResultT = TypeVar("ResultT")
P = ParamSpec("P")


class LeaseLost(Exception):
    """Another process continues."""


class Retention:
    def __init__(
        self,
        database: Database,
        settings: MeteringSettings,
        log: Log,
        *,
        pause_s: float = PAUSE_S,
        read_most: int = READ_MOST,
    ) -> None:
        self._database = database
        self._settings = settings
        self._log = log
        self._report_sums = ReportSums(database, log, pause_s=pause_s)
        self._pause_s = pause_s
        self._read_most = read_most
        self._holder = uuid4().hex
        self._leased_at_s = 0.0
        self._holds_done_at_s: float | None = None
        self.closed_months = 0
        # Months that are due, and were not closed because of a violation or a failure.
        self.months_to_close = 0
        # Partitions after that of this month; of PostgreSQL only.
        self.months_ahead = MONTHS_AHEAD
        self.pruned = {"holds": 0, "ledger": 0, "usage_hours": 0}
        self.last_pass_s = time.time()

    async def run(self) -> None:
        async def run_pass() -> None:
            with contextlib.suppress(LeaseLost):
                await self.run_pass()

        await run_passes(run_pass, self._settings.retention_interval_s, self._log)

    async def run_pass(self) -> bool:
        """Does everything that is due; returns False if another process is at it."""
        if not await self._lease():
            self.last_pass_s = time.time()
            return False
        await self.create_partitions()
        await self.close_months()
        # Before anything that the sums by model are made of is deleted.
        await self._report_sums.sum_up()
        await self.prune_ledger()
        await self.sum_up_usage()
        now_s = time.monotonic()
        if self._holds_done_at_s is None or now_s - self._holds_done_at_s >= HOLDS_EVERY_S:
            await self.prune_holds()
            self._holds_done_at_s = now_s
        self.last_pass_s = time.time()
        return True

    async def create_partitions(self) -> None:
        if self._database.is_sqlite:
            return
        self.months_ahead = await self._database.write(
            lambda connection: partitions.create_partitions_ahead(connection, read_now_us(connection), MONTHS_AHEAD)
        )

    async def try_to_create_partitions(self) -> None:
        """Logs a failure: there may be partitions for some months yet."""
        try:
            await self.create_partitions()
        except Exception as error:
            self.months_ahead = 0
            self._log.failure("retention.failed", error)

    async def close_months(self) -> None:
        """Closes all months that are due, the oldest first, if the audit finds nothing."""
        month, now_us = await self._database.read(
            lambda connection: (closing_store.find_next_month(connection), read_now_us(connection))
        )
        due = list(self._due(month, now_us))
        self.months_to_close = len(due)
        if not due:
            return
        violations = await self._audit()
        if violations:
            for violation in violations[:LOGGED_MOST]:
                self._log.warning("closing.refused", month=str(due[0]), violation=violation)
            return
        for each in due:
            closing = await self.close_month(each)
            self.closed_months += 1
            self.months_to_close -= 1
            self._log.info("month.closed", month=str(each), entries=closing.entries, closing_hash=closing.closing_hash)
        memory.give_back()

    def _due(self, month: CalendarMonth | None, now_us: int) -> Iterator[CalendarMonth]:
        while month is not None and month.ends_us + self._settings.retention_close_after_days * DAY_US <= now_us:
            yield month
            month = month.next

    async def _audit(self) -> list[str]:
        """Audits, and renews the lease meanwhile: an audit may take longer than it lasts."""
        running = asyncio.ensure_future(audit_in_thread(self._database, "metering-closing", find_violations))
        while not running.done():
            await asyncio.wait([running], timeout=RENEW_AFTER_S)
            if not running.done() and not await self._lease():
                raise LeaseLost
        return running.result()

    async def close_month(self, month: CalendarMonth) -> Closing:
        """Closes the month after the last closed one. Its entries must have been audited."""
        failpoints.hit("metering.closing.begun")
        while await self._write(closing_store.delete_drafts, month, WRITE_MOST):
            pass
        previous, entries, sums = await self._database.read(
            lambda connection: (
                closing_store.read_last_closing(connection),
                entries := closing_store.find_entries(connection, month),
                {each.account_id: each for each in closing_store.sum_by_account(connection, entries)},
            )
        )
        entries_digest = await self._digest(entries)
        accounts_digest = await self._write_accounts(month, previous, sums)
        failpoints.hit("metering.closing.drafted")

        def write(connection: Connection) -> Closing:
            closing = close_month(month, entries_digest, accounts_digest, previous, read_now_us(connection))
            closing_store.write_closing(connection, closing)
            return closing

        closing = await self._write(write)
        failpoints.hit("metering.closing.closed")
        return closing

    async def _digest(self, entries: EntryRange, take: Callable[[bytes], None] | None = None) -> EntriesDigest:
        """Reads the entries of a month, and gives their text to `take`."""
        digest = EntriesDigest(LEDGER_COLUMNS)

        def read(connection: Connection) -> int | None:
            rows = closing_store.read_month_entries(connection, entries, self._read_most)
            if not rows:
                return None
            text = digest.add(rows)
            if take is not None:
                take(text)
            return int(rows[-1][0])

        while (last_id := await self._database.read(read)) is not None:
            entries = entries._replace(after_id=last_id)
            await self._pause()
        return digest

    async def _write_accounts(
        self, month: CalendarMonth, previous: Closing | None, sums: dict[str, AccountClosing]
    ) -> AccountsDigest:
        """Writes each account's row: those of the month before, and new ones, in one order."""
        digest, before_us = AccountsDigest(), -1 if previous is None else previous.month_us
        closed_ids = await self._database.read(closing_store.read_account_ids, before_us)
        account_ids = sorted(sums.keys() | closed_ids)
        for start in range(0, len(account_ids), WRITE_MOST):
            some = account_ids[start : start + WRITE_MOST]
            found = await self._database.read(
                lambda connection: [*closing_store.read_account_closings(connection, before_us, some)]  # noqa: B023
            )
            before = {each.account_id: each for each in found}
            rows = [close_account(month, each, before.get(each), sums.get(each)) for each in some]
            for row in rows:
                digest.add(row)
            await self._write(closing_store.write_drafts, rows)
        return digest

    async def prune_ledger(self) -> None:
        """Deletes the entries of months that the policy does not keep, once each is proved to be what was closed."""
        state, closings, now_us = await self._database.read(_read_closed)
        if kept := self._settings.retention_ledger_months:
            before_us = months_before(now_us, kept).start_us
            for each in closings:
                if state.ledger_pruned_before_us <= each.month_us and each.ends_us <= before_us:
                    if not await self._release(each):
                        return
                    state = state._replace(ledger_pruned_before_us=each.ends_us)
        if state.ledger_pruned_before_us:
            await self._delete_entries(state.ledger_pruned_before_us)

    async def _release(self, closing: Closing) -> bool:
        """Archives a month, keeps the ids of its credits, and marks it as pruned. Returns False if its entries are not
        those that were closed: they stay."""
        month = closing.month
        entries = await self._database.read(closing_store.find_entries, month)
        violations = await self._archive(closing, entries)
        for violation in violations:
            self._log.warning("pruning.refused", month=str(month), violation=violation)
        if violations:
            return False
        failpoints.hit("metering.pruning.archived")
        rest = entries
        while rows := await self._database.read(closing_store.read_month_entries, rest, READ_MOST):
            await self._write(pruning.keep_credits, rows, LEDGER_COLUMNS)
            rest = rest._replace(after_id=rows[-1][0])
        await self._write(pruning.mark, "ledger_pruned_before_us", closing.ends_us)
        failpoints.hit("metering.pruning.marked")
        self._log.info("month.pruned", month=str(month), entries=closing.entries)
        return True

    async def _archive(self, closing: Closing, entries: EntryRange) -> list[str]:
        """Returns where the entries differ from their closing. Only what does not differ becomes the archive: another
        process may have archived the month, and deleted its entries meanwhile."""
        folder = self._settings.retention_archive
        if folder is None:
            return [*entry_violations(closing, await self._digest(entries))]
        writer = ArchiveWriter(folder, entries.month)
        try:
            await self._digest(entries, writer.write)
            file = await asyncio.to_thread(writer.finish)
            _, digest = await asyncio.to_thread(read_archive, file)
            violations = [*entry_violations(closing, digest)]
            if not violations:
                await asyncio.to_thread(writer.publish)
        except (ArchiveWrong, OSError):
            # A process that took over has removed what this one wrote.
            if await self._lease():
                raise
            raise LeaseLost from None
        finally:
            writer.close()
        return violations

    async def _delete_entries(self, before_us: int) -> None:
        if not self._database.is_sqlite:
            await self._write(lambda connection: None)
            await asyncio.to_thread(self._drop_partitions, before_us)
            return
        last_id = await self._database.read(
            lambda connection: closing_store.find_entries(connection, month_of(before_us - 1)).last_id
        )
        while deleted := await self._write(pruning.delete_entries, before_us, last_id, WRITE_MOST):
            self.pruned["ledger"] += deleted
            failpoints.hit("metering.pruning.deleted")

    def _drop_partitions(self, before_us: int) -> None:
        with self._database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for name in partitions.drop_partitions(connection, before_us):
                self._log.info("partition.dropped", partition=name)
                failpoints.hit("metering.pruning.deleted")

    async def sum_up_usage(self) -> None:
        """Sums up the hours of closed months that the policy does not keep, to one row for each month."""
        state, closings, now_us = await self._database.read(_read_closed)
        before_us, kept = state.usage_marked_before_us, self._settings.retention_usage_months
        if kept:
            before_us = max(before_us, months_before(now_us, kept).start_us)
        for closing in closings:
            if state.usage_summed_before_us <= closing.month_us and closing.ends_us <= before_us:
                # From here on, balances within the month are not computed from its hours.
                await self._mark("usage_marked_before_us", closing.ends_us)
                await self._sum_up(closing.month)
                await self._mark("usage_summed_before_us", closing.ends_us)

    async def _mark(self, name: str, before_us: int) -> None:
        await self._write(pruning.mark, name, before_us)

    async def _sum_up(self, month: CalendarMonth) -> None:
        after = ""
        while account_ids := await self._database.read(pruning.find_accounts, month, after, WRITE_MOST // 10):
            self.pruned["usage_hours"] += await self._write(pruning.sum_up_hours, account_ids, month)
            failpoints.hit("metering.pruning.summed")
            after = account_ids[-1]

    async def prune_holds(self) -> None:
        """Deletes settled and released holds of closed months that are older than the policy keeps."""
        _, closings, now_us = await self._database.read(_read_closed)
        kept_us = self._settings.retention_holds_days * DAY_US
        if not closings or not kept_us:
            return
        before_us, after = min(closings[-1].ends_us, now_us - kept_us), ""
        while True:
            old_ids, last_id = await self._database.read(pruning.find_old_holds, after, before_us, READ_MOST)
            for start in range(0, len(old_ids), WRITE_MOST):
                some = old_ids[start : start + WRITE_MOST]
                self.pruned["holds"] += await self._write(pruning.delete_holds, some, before_us)
                failpoints.hit("metering.pruning.holds")
            if last_id is None:
                return
            after = last_id
            await self._pause()

    async def _write(
        self, change: Callable[Concatenate[Any, P], ResultT], *arguments: P.args, **named: P.kwargs
    ) -> ResultT:
        """Writes only as long as no other process has taken over: this one may have stood still, or the clock may have
        been set."""

        def write(connection: Connection) -> ResultT:
            if not pruning.has_lease(connection, self._holder):
                raise LeaseLost
            return change(connection, *arguments, **named)

        result = await self._database.write(write)
        await self._pause()
        return result

    async def _pause(self) -> None:
        """Leaves time to others between two portions."""
        await asyncio.sleep(self._pause_s)
        if time.monotonic() - self._leased_at_s > RENEW_AFTER_S and not await self._lease():
            raise LeaseLost

    async def _lease(self) -> bool:
        leased = await self._database.write(pruning.lease, self._holder, LEASE_US)
        self._leased_at_s = time.monotonic()
        return bool(leased)


def _read_closed(connection: Connection) -> tuple[RetentionState, list[Closing], int]:
    """Returns what was pruned, the closed months, and the time."""
    return closing_store.read_retention(connection), closing_store.read_closings(connection), read_now_us(connection)
