"""Prunes the audit log by policy: whole calendar months, in portions between which others append.

Any number of replicas may do this at the same time: the start of the log only moves forward, and what one deletes is
gone for the others. Once the start is moved, a pass that is interrupted is finished by the next.
"""

from datetime import UTC, timedelta

from services.auth.core.audit_log import AuditLog
from services.auth.core.store import audit as stored
from services.auth.core.times import to_micros
from services.chassis.database.database import Database
from services.chassis.database.portions import PAUSE_S, delete_in_portions
from services.chassis.process.passes import run_passes
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock


class AuditRetention:
    def __init__(
        self, database: Database, audit: AuditLog, clock: Clock, log: Log, *, kept_days: int, pause_s: float = PAUSE_S
    ) -> None:
        """Keeps events for at least so many days; 0: for ever."""
        self._database = database
        self._audit = audit
        self._clock = clock
        self._log = log
        self._kept_days = kept_days
        self._pause_s = pause_s
        # Since the process started.
        self.pruned = 0

    async def run(self, interval_s: float) -> None:
        await run_passes(self.run_pass, interval_s, self._log)

    async def run_pass(self) -> None:
        if not self._kept_days:
            return
        last_no = await self._database.read(stored.find_last_before, self._kept_from_us())
        if last_no:
            _, broken = await self._database.read(self._audit.verify)
            if broken:
                # Nothing is deleted that could prove what was changed.
                self._log.warning("audit_log.not_pruned", violations=len(broken))
                return
            await self._database.write(self._audit.prune_until, last_no)
        pruned_before = self.pruned
        # Also what an earlier pass did not finish.
        await delete_in_portions(self._database, stored.delete_pruned, self._record, self._pause_s)
        if self.pruned > pruned_before:
            self._log.info("audit_log.pruned", entries=self.pruned - pruned_before)

    def _kept_from_us(self) -> int:
        """Returns the start of the month of the oldest event that must be kept."""
        oldest_kept = self._clock.now().astimezone(UTC) - timedelta(days=self._kept_days)
        return to_micros(oldest_kept.replace(day=1, hour=0, minute=0, second=0, microsecond=0))

    def _record(self, deleted: int) -> None:
        self.pruned += deleted
