"""Audits single accounts when their owners ask: one at a time, in a thread of its own, seldom for a large ledger."""

import asyncio
from collections import OrderedDict
from datetime import datetime
from typing import Final, NamedTuple

from services.chassis.database.database import Database
from services.chassis.timing.deadlines import Clock, SystemClock
from services.metering.audit.auditor import audit_in_thread, find_violations_of
from services.metering.audit.store.account_totals import find_last_entry, read_totals
from services.metering.store import Connection

# While nothing is booked, what was found is told again for so long.
VALID_FOR_S: Final = 600.0
# What was found is told again for so many times as long as it took: audits take a tenth of a processor at most.
REST_FACTOR: Final = 10.0
KEPT_MOST: Final = 1_000


class FoundAudit(NamedTuple):
    violations: list[str]
    entries: int
    balance_nanos: int
    # The last entry that it has read.
    entry_id: int
    ended_at: datetime
    # The same, by `elapsed_s`.
    ended_s: float
    took_s: float


class AuditProgress(NamedTuple):
    # None: it still runs.
    found: FoundAudit | None
    running_s: float = 0.0


class AccountAudits:
    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock: Clock = clock or SystemClock()
        self._turn = asyncio.Lock()
        # With the time at which each began.
        self._running: dict[str, tuple[asyncio.Task[FoundAudit], float]] = {}
        # The newest last.
        self._found: OrderedDict[str, FoundAudit] = OrderedDict()

    async def audit(self, account_id: str, wait_s: float | None = None) -> AuditProgress:
        """Audits an account, and waits for the end for at most `wait_s`; the audit goes on in any case. Callers that
        ask for the same account get the same audit. A caller that waits however long it takes gets a new one."""
        if account_id not in self._running:
            known = self._found.get(account_id)
            if wait_s is not None and known is not None and await self._is_still_valid(account_id, known):
                return AuditProgress(known)
        # Others may have asked meanwhile.
        if account_id not in self._running:
            task = asyncio.create_task(self._audit(account_id))
            # Callers that wait get the error; there may be none.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._running[account_id] = task, self._clock.elapsed_s()
        running, began_s = self._running[account_id]
        done, _ = await asyncio.wait([running], timeout=wait_s)
        return AuditProgress(running.result() if done else None, self._clock.elapsed_s() - began_s)

    async def _is_still_valid(self, account_id: str, known: FoundAudit) -> bool:
        """Returns whether nothing was booked since, or it is too early to look again."""
        age_s = self._clock.elapsed_s() - known.ended_s
        if age_s < REST_FACTOR * known.took_s or age_s >= VALID_FOR_S:
            return age_s < REST_FACTOR * known.took_s
        last_id = await self._database.read(find_last_entry, account_id)
        return last_id == known.entry_id

    async def _audit(self, account_id: str) -> FoundAudit:
        try:
            async with self._turn:
                began_s = self._clock.elapsed_s()
                looked = await audit_in_thread(
                    self._database, "metering-account-audit", lambda connection: _look(connection, account_id)
                )
                ended_s = self._clock.elapsed_s()
            found = self._found[account_id] = FoundAudit(*looked, self._clock.now(), ended_s, ended_s - began_s)
            self._found.move_to_end(account_id)
            while len(self._found) > KEPT_MOST:
                self._found.popitem(last=False)
            return found
        finally:
            del self._running[account_id]


def _look(connection: Connection, account_id: str) -> tuple[list[str], int, int, int]:
    totals, last_id = read_totals(connection, account_id), find_last_entry(connection, account_id)
    return find_violations_of(connection, account_id), *totals, last_id
