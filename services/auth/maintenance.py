"""Lets an operator stop new chats, on every edge and without a restart."""

from collections.abc import Callable
from dataclasses import replace

from services.auth import checks
from services.auth.parts import Domain, reads
from services.auth.records.keys import MaintenanceNotice
from services.auth.store import Connection
from services.auth.store import maintenance as stored
from services.chassis.access_tokens import current_access


class MaintenanceAdmin(Domain):
    @reads
    def get(self, connection: Connection) -> MaintenanceNotice | None:
        return stored.read_maintenance(connection)

    async def start(self, message: str, retry_after_s: int) -> MaintenanceNotice | None:
        """Starts maintenance; returns when no edge admits new chats. If it is on already, its start time is kept."""
        wanted = MaintenanceNotice(
            checks.maintenance_message(message), checks.retry_after_s(retry_after_s), self.now_us()
        )

        def started(before: MaintenanceNotice | None) -> MaintenanceNotice:
            return wanted if before is None else replace(wanted, started_at_us=before.started_at_us)

        return await self._change("maintenance.started", started)

    async def end(self) -> None:
        """Ends maintenance; returns when every edge admits chats again."""
        await self._change("maintenance.ended", lambda before: None)

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

        maintenance = await self._database.write(write)
        self._log.info(action)
        await self._hold_everywhere()
        return maintenance
