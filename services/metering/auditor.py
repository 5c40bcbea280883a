"""Proves the books again and again while metering runs, and tells what it found: in the log, and to Prometheus."""

import asyncio
import math
import threading
from concurrent.futures import Future
from typing import Final, NamedTuple

from services.chassis.database.database import Database
from services.chassis.process import memory
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry, gauge
from services.chassis.timing.clock import Clock
from services.metering.audit import find_violations
from services.metering.store.checks import few_pages
from services.metering.store.reports import HoldCounts, count_holds

# Soon, but not while whoever has just been started is asked for the first time.
FIRST_AFTER_S: Final = 5.0
# All of them are in `legato audit`.
LOGGED_MOST: Final = 20


class Findings(NamedTuple):
    violations: list[str]
    holds: HoldCounts


class Auditor:
    def __init__(self, database: Database, interval_s: float, clock: Clock, log: Log, registry: Registry) -> None:
        """`interval_s` lies between the end of an audit and the beginning of the next."""
        self._database = database
        self._interval_s = interval_s
        self._clock = clock
        self._log = log
        # Nobody knows yet; 0 would say that the books are right.
        self._violations = math.nan
        # Whoever waits for the first audit counts from here.
        self._last_run_s = clock.now().timestamp()
        self._holds = HoldCounts(0, 0)
        self._show(registry)

    def _show(self, registry: Registry) -> None:
        gauge(
            registry,
            "legato_audit_violations",
            "Contradictions that the last audit found in the books.",
            lambda: self._violations,
        )
        gauge(
            registry,
            "legato_audit_last_run_timestamp_seconds",
            "When the last audit came to its end; before the first, when it was first waited for.",
            lambda: self._last_run_s,
        )
        gauge(
            registry,
            "legato_audit_interval_seconds",
            "How long after an audit the next one begins.",
            lambda: self._interval_s,
        )
        gauge(
            registry,
            "legato_holds_live",
            "Requests for which credit was held at that time.",
            lambda: self._holds.live,
        )
        gauge(
            registry,
            "legato_holds_overdue",
            "Those of them that should have been swept by then.",
            lambda: self._holds.overdue,
        )

    async def run(self) -> None:
        """Until cancelled. An audit that fails is tried again at the next turn."""
        await asyncio.sleep(min(FIRST_AFTER_S, self._interval_s))
        while True:
            try:
                self._report(await self._look())
            except Exception as error:
                self._log.failure("audit.failed", error)
            await asyncio.sleep(self._interval_s)

    def _report(self, found: Findings) -> None:
        self._violations = len(found.violations)
        self._last_run_s = self._clock.now().timestamp()
        self._holds = found.holds
        for violation in found.violations[:LOGGED_MOST]:
            self._log.warning("audit.violation", violation=violation, violations=len(found.violations))

    async def _look(self) -> Findings:
        """In a thread of its own: it takes none from other readers, and nobody waits for it at the end."""
        looking: Future[Findings] = Future()
        looking.set_running_or_notify_cancel()
        threading.Thread(target=self._look_in_thread, args=[looking], name="metering-audit", daemon=True).start()
        return await asyncio.wrap_future(looking)

    def _look_in_thread(self, looking: Future[Findings]) -> None:
        try:
            with self._database.transaction(writes=False) as connection, few_pages(connection):
                findings = Findings(find_violations(connection), count_holds(connection))
            # Else every audit of a larger ledger would leave metering a little larger.
            memory.give_back()
        except Exception as error:
            looking.set_exception(error)
        else:
            looking.set_result(findings)
