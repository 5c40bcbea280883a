"""Lets an operator stop new chats, on every edge and without a restart."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from services.auth import checks
from services.auth.audit.log import AuditLog
from services.auth.changes import HOLDS_EVERYWHERE_AFTER_S, Sleep
from services.auth.records.keys import MaintenanceNotice
from services.auth.records.times import to_micros
from services.auth.store import Connection
from services.auth.store import maintenance as stored
from services.chassis.access_tokens import current_access
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import Clock


class MaintenanceAdmin:
    def __init__(
        self, database: Database, audit: AuditLog, clock: Clock, log: Log, sleep: Sleep = asyncio.sleep
    ) -> None:
        self._database = database
        self._audit = audit
        self._clock = clock
        self._log = log
        self._sleep = sleep

    async def get(self) -> MaintenanceNotice | None:
        return await self._database.read(stored.read_maintenance)

    async def start(self, message: str, retry_after_s: int) -> MaintenanceNotice | None:
        """Starts maintenance; returns when no edge admits new chats. If it is on already, its start time is kept."""
        wanted = MaintenanceNotice(
            checks.maintenance_message(message), checks.retry_after_s(retry_after_s), to_micros(self._clock.now())
        )

        def started(before: MaintenanceNotice | None) -> MaintenanceNotice:
            return wanted if before is None else replace(wanted, started_at_us=before.started_at_us)

        maintenance = await self._change("maintenance.started", started)
        self._log.info("maintenance.started")
        # Even if nothing changed: another caller may have made the change a moment ago.
        await self._sleep(HOLDS_EVERYWHERE_AFTER_S)
        return maintenance

    async def end(self) -> None:
        """Ends maintenance; returns when every edge admits chats again."""
        await self._change("maintenance.ended", lambda before: None)
        self._log.info("maintenance.ended")
        await self._sleep(HOLDS_EVERYWHERE_AFTER_S)

    async def _change(
        self, action: str, change: Callable[[MaintenanceNotice | None], MaintenanceNotice | None]
    ) -> MaintenanceNotice | None:
        by = current_access.get()

        def write(connection: Connection) -> MaintenanceNotice | None:
            before = stored.read_maintenance(connection)
            after = stored.change_maintenance(connection, change)
            if after != before:
                self._audit.append(connection, action, by)
            return after

        return await self._database.write(write)
