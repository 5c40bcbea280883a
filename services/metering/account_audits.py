"""Audits single accounts when their owners ask: one at a time, in a thread of its own, seldom for a large ledger."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from services.chassis.database.database import Database
from services.chassis.timing.deadlines import Clock, SystemClock
from services.metering.auditor import audit_in_thread, find_violations_of
from services.metering.store import statements as store

# While nothing is booked, what was found is told again for so long.
TOLD_FOR_S: Final = 600.0
# What was found is told again for so many times as long as it took: audits take a tenth of a processor at most.
REST_FACTOR: Final = 10.0
KEPT_MOST: Final = 1_000


class AccountAudit(NamedTuple):
    violations: list[str]
    entries: int
    balance_nanos: int


class FoundAudit(NamedTuple):
    audit: AccountAudit
    # The last entry that it has read.
    entry_id: int
    ended_at: datetime
    took_s: float


@dataclass(frozen=True, slots=True)
class _Run:
    task: "asyncio.Task[FoundAudit]"
    began_s: float


@dataclass(frozen=True, slots=True)
class AuditProgress:
    # None: it still runs.
    found: FoundAudit | None
    running_s: float = 0.0


class AccountAudits:
    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock: Clock = clock or SystemClock()
        self._turn = asyncio.Lock()
        self._running: dict[str, _Run] = {}
        # With the time at which each ended, by `elapsed_s`; the newest last.
        self._found: OrderedDict[str, tuple[FoundAudit, float]] = OrderedDict()

    async def audit(self, account_id: str, wait_s: float | None = None) -> AuditProgress:
        """Audits an account, and waits for the end for at most `wait_s`; the audit goes on in any case. Callers that
        ask for the same account get the same audit. A caller that waits however long it takes gets a new one."""
        run = self._running.get(account_id)
        if run is None:
            known = None if wait_s is None else await self._known(account_id)
            if known is not None:
                return AuditProgress(known)
            # Others may have asked meanwhile.
            run = self._running.get(account_id) or self._start(account_id)
        done, _ = await asyncio.wait([run.task], timeout=wait_s)
        return AuditProgress(run.task.result() if done else None, self._clock.elapsed_s() - run.began_s)

    def _start(self, account_id: str) -> _Run:
        run = _Run(asyncio.create_task(self._audit(account_id)), self._clock.elapsed_s())
        self._running[account_id] = run
        # Callers that wait get the error; there may be none.
        run.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return run

    async def _known(self, account_id: str) -> FoundAudit | None:
        """Returns what was found before, if nothing was booked since, or if it is too early to look again."""
        found, ended_s = self._found.get(account_id, (None, 0.0))
        if found is None:
            return None
        age_s = self._clock.elapsed_s() - ended_s
        if age_s < REST_FACTOR * found.took_s:
            return found
        if age_s >= TOLD_FOR_S:
            return None
        last_id = await self._database.read(lambda connection: store.find_last_entry(connection, account_id))
        return found if last_id == found.entry_id else None

    async def _audit(self, account_id: str) -> FoundAudit:
        try:
            async with self._turn:
                began_s = self._clock.elapsed_s()
                audit, entry_id = await audit_in_thread(
                    self._database, "metering-account-audit", lambda connection: _look(connection, account_id)
                )
                ended_s = self._clock.elapsed_s()
            found = FoundAudit(audit, entry_id, self._clock.now(), ended_s - began_s)
            self._found[account_id] = (found, ended_s)
            self._found.move_to_end(account_id)
            while len(self._found) > KEPT_MOST:
                self._found.popitem(last=False)
            return found
        finally:
            del self._running[account_id]


def _look(connection: Any, account_id: str) -> tuple[AccountAudit, int]:
    totals, last_id = store.read_totals(connection, account_id), store.find_last_entry(connection, account_id)
    return AccountAudit(find_violations_of(connection, account_id), totals.entries, totals.nanos), last_id
