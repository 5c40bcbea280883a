"""Audits the books periodically, and reports to the log and to Prometheus."""

import asyncio
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from services.chassis.database.database import Database
from services.chassis.database.held_lock import HeldLock
from services.chassis.process import memory
from services.chassis.process.passes import run_passes
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import Clock
from services.metering.audit.closed_months import find_chain_violations
from services.metering.audit.store import checks, owed_checks
from services.metering.audit.store.checks import ALL_ROWS, Check, CheckParameters, few_pages, rows_of_account
from services.metering.audit.store.entry_sums import screen_entries
from services.metering.audit.store.screening import (
    CREDIT_ROWS,
    SUSPECT_ROWS,
    find_suspects,
    forced_index_lookups,
    portions,
)
from services.metering.audit.store.statistics_check import recent_scope, wrong_days
from services.metering.credit.store.balances import HoldCounts, count_holds
from services.metering.store import Connection
from services.metering.store.schema import AnyQuery

FoundT = TypeVar("FoundT")

# The first ones are what a reader needs.
LINES_MOST: Final = 1000

# Each check, and the message for a row that it returns.
CHECKS: Final[tuple[tuple[Check, str], ...]] = (
    (checks.uncovered_accounts, "account {0}: holds {2} nanos of a balance of {1}"),
    (checks.balances_against_ledger, "account {0}: balance is {1:+} nanos off the sum of its ledger"),
    (checks.held_against_holds, "account {0}: held credit is {1:+} nanos off the sum of its live holds"),
    (owed_checks.owed_against_changes, "account {0}: what it owes is {1:+} nanos off the sum of its changes"),
    (owed_checks.owed_against_ledger, "adjustment of {0}: adds {1:+} nanos more to what is owed than its loss"),
    (owed_checks.owed_of_free_credit, "account {0}: owes {1} nanos, and has {2} that no request holds"),
    (checks.unbalanced_entries, "{0} of {1}: its legs sum to {2} nanos, not to zero"),
    (checks.repeated_entries, "{0} of {1}: booked {2} times"),
    (checks.repeated_counts, "request {0}: counted {1} times"),
    (checks.holds_against_ledger, "request {0}: its hold is {1:+} nanos off its charges, {2:+} off its losses"),
    (checks.entries_on_other_terms, "{0} of {1}: not by the account, key, class and prices of its hold"),
    (checks.charged_voids, "request {0}: charged, though its hold is {1}"),
    (checks.unbooked_settlements, "request {0}: settled, though nothing was booked"),
    (checks.claims_without_holds, "account {0}: request {1} has an Idempotency-Key of it, but no hold"),
    (checks.counters_against_ledger, "usage of account {0}, key {1}, class {2}, hour {3}: differs from its charges"),
    (checks.overcharged_requests, "request {0}: charged {1} nanos more than it cost"),
    (checks.entries_without_price, "{0} of {1}: by a price of class {2} in version {3}, which does not exist"),
    (checks.spends_against_usage, "account {0}, key {1!r}: what its spend limits count differs from its usage"),
    (checks.wrong_costs, "request {0}: booked at {1} nanos, its tokens cost {2}"),
)
# Statistics are no account's own rows, and belong to the full audit alone.
WRONG_DAY: Final = (
    "sums of day {0}, account {1}, class {2!r}, provider {3!r}, model {4!r}: differ from its entries and requests"
)
# Those that decide on each request by itself.
_OF_REQUESTS: Final = frozenset(
    {
        checks.repeated_entries,
        checks.repeated_counts,
        checks.holds_against_ledger,
        checks.entries_on_other_terms,
        checks.charged_voids,
        checks.unbooked_settlements,
        checks.overcharged_requests,
        checks.entries_without_price,
        checks.wrong_costs,
    }
)


class _Check(NamedTuple):
    check: Check
    line: str
    whole: AnyQuery
    # If each request is decided on by itself: the check of suspects, and that of entries without a request.
    of_suspects: AnyQuery | None = None
    of_credits: AnyQuery | None = None


# Built once: that takes longer than to run them on a small ledger.
_FULL_AUDIT: Final = tuple(
    _Check(
        check,
        line,
        check(ALL_ROWS),
        check(SUSPECT_ROWS) if check in _OF_REQUESTS else None,
        check(CREDIT_ROWS) if check is checks.repeated_entries else None,
    )
    for check, line in CHECKS
)


async def audit(database: Database) -> list[str]:
    """Audits one snapshot, so that concurrent writes do not look like violations."""
    return await database.read(find_violations)


def find_violations(connection: Connection, *, only_recent_sums: bool = False) -> list[str]:
    """Verifies the chain of closings, and audits everything since the last one; with `only_recent_sums`, of the sums by
    model only those of yesterday and today: no others change."""
    checks.expect_full_tables(connection)
    scope = checks.read_scope(connection)
    summed = recent_scope(connection, scope) if only_recent_sums else scope
    found = chain(
        find_chain_violations(connection),
        _open_violations(connection, scope),
        (WRONG_DAY.format(*wrong) for wrong in wrong_days(connection, summed.parameters)),
    )
    return list(islice(found, LINES_MOST))


def _open_violations(connection: Connection, scope: checks.AuditScope) -> Iterator[str]:
    entries = screen_entries(connection, scope)
    suspects = find_suspects(connection, scope, entries)
    for check, line, whole, of_suspects, of_credits in _FULL_AUDIT:
        if check in entries.proved:
            continue
        if suspects is None or of_suspects is None:
            yield from _violations(connection, [(whole, line)], scope.parameters)
            continue
        if of_credits is not None and not entries.are_credits_single:
            yield from _violations(connection, [(of_credits, line)], scope.parameters)
        for parameters in portions(suspects, scope):
            with forced_index_lookups(connection):
                yield from _violations(connection, [(of_suspects, line)], parameters)


def find_violations_of(connection: Connection, account_id: str) -> list[str]:
    """Audits one account, at a cost that grows with its own ledger only. A settled request without any entry is found
    by a full audit alone: nothing leads to it from its account."""
    rows, scope = rows_of_account(account_id), checks.read_scope(connection)
    selected = [(check(rows), line) for check, line in CHECKS if check is not checks.unbooked_settlements]
    return list(islice(_violations(connection, selected, scope.parameters), LINES_MOST))


def _violations(
    connection: Connection, selected: Iterable[tuple[AnyQuery, str]], parameters: CheckParameters
) -> Iterator[str]:
    for check, line in selected:
        for row in checks.stream(connection, check, parameters):
            yield line.format(*row)


# Soon, but after the first requests of a new process.
FIRST_AFTER_S: Final = 5.0
# `legato audit` shows all of them.
LOGGED_MOST: Final = 20


class Auditor:
    def __init__(self, database: Database, interval_s: float, clock: Clock, log: Log, registry: Registry) -> None:
        """Audits `database`; `interval_s` is the pause between two audits. Of several replicas one does."""
        self._database = database
        self._lock = HeldLock(database, "audit")
        self._interval_s = interval_s
        self._clock = clock
        self._log = log
        # Unknown yet; 0 would mean that the ledger is consistent.
        self._violations = math.nan
        # Alerts on a missing first audit count from here.
        self._last_run_s = clock.now().timestamp()
        self._holds = HoldCounts(0, 0)
        found = "Violations found by the last audit of the ledger."
        registry.gauge("legato_audit_violations", found, lambda: self._violations)
        last_run = (
            "Time at which the last audit ended; before the first one, of the start. NaN if another replica audits."
        )
        registry.gauge("legato_audit_last_run_timestamp_seconds", last_run, lambda: self._last_run_s)
        registry.gauge("legato_audit_interval_seconds", "Pause between two audits.", lambda: self._interval_s)
        registry.gauge("legato_holds_live", "Open holds at the time of the last audit.", lambda: self._holds.live)
        overdue = "Open holds at the time of the last audit that were overdue for sweeping."
        registry.gauge("legato_holds_overdue", overdue, lambda: self._holds.overdue)

    async def run(self) -> None:
        """Audits periodically until cancelled, unless another replica does."""
        try:
            await run_passes(self._audit_once, self._interval_s, self._log, "audit.failed", FIRST_AFTER_S)
        finally:
            self._lock.release()

    async def _audit_once(self) -> None:
        is_ours = True
        try:
            is_ours = await asyncio.to_thread(self._lock.take)
        finally:
            if not is_ours:
                # What this one has found before is no longer the last audit.
                self._violations = self._last_run_s = math.nan
                self._holds = HoldCounts(0, 0)
            elif math.isnan(self._last_run_s):
                # It takes over: alerts on a missing audit count from here.
                self._last_run_s = self._clock.now().timestamp()
        if is_ours:
            await self._audit()

    async def _audit(self) -> None:
        violations, self._holds = await audit_in_thread(self._database, "metering-audit", _look)
        self._violations = len(violations)
        self._last_run_s = self._clock.now().timestamp()
        for violation in violations[:LOGGED_MOST]:
            self._log.warning("audit.violation", violation=violation, violations=len(violations))


def _look(connection: Connection) -> tuple[list[str], HoldCounts]:
    return find_violations(connection, only_recent_sums=True), count_holds(connection)


async def audit_in_thread(database: Database, name: str, look: Callable[[Connection], FoundT]) -> FoundT:
    """Looks at one snapshot in a thread of its own: other readers keep theirs, and shutdown does not wait for it."""
    looking: Future[FoundT] = Future()
    looking.set_running_or_notify_cancel()

    def run() -> None:
        try:
            with database.transaction(writes=False) as connection, few_pages(connection):
                found = look(connection)
            # Otherwise every audit of a growing ledger would leave the process a little larger.
            memory.give_back()
        except Exception as error:
            looking.set_exception(error)
        else:
            looking.set_result(found)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(looking)
