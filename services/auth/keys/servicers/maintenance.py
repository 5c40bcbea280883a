"""Implements the RPCs of maintenance: an operator stops new chats, on every edge and without a restart."""

from collections.abc import Callable
from dataclasses import replace

from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.core import checks
from services.auth.core.parts import Domain
from services.auth.core.store import Connection
from services.auth.keys.records import MaintenanceNotice
from services.auth.keys.store.epochs import put_maintenance, read_maintenance
from services.chassis.access_tokens import current_access
from services.chassis.changes import changes_between
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message


class MaintenanceMethods(Domain):
    async def StartMaintenance(
        self, request: pb.StartMaintenanceRequest, context: Context
    ) -> pb.StartMaintenanceResponse:
        """Starts maintenance; returns when no edge admits new chats. If it is on already, its start time is kept."""
        message, retry_after_s = (
            checks.maintenance_message(request.message),
            checks.retry_after_s(request.retry_after_s),
        )
        wanted = MaintenanceNotice(message, retry_after_s, self.now_us())

        def started(before: MaintenanceNotice | None) -> MaintenanceNotice:
            return wanted if before is None else replace(wanted, started_at_us=before.started_at_us)

        return pb.StartMaintenanceResponse(maintenance=await self._change("maintenance.started", started))

    async def EndMaintenance(self, request: pb.EndMaintenanceRequest, context: Context) -> pb.EndMaintenanceResponse:
        """Ends maintenance; returns when every edge admits chats again."""
        return pb.EndMaintenanceResponse(maintenance=await self._change("maintenance.ended", lambda before: None))

    async def GetMaintenance(self, request: pb.GetMaintenanceRequest, context: Context) -> pb.GetMaintenanceResponse:
        return pb.GetMaintenanceResponse(maintenance=to_maintenance(await self._database.read(read_maintenance)))

    async def _change(
        self, action: str, change: Callable[[MaintenanceNotice | None], MaintenanceNotice | None]
    ) -> pb.Maintenance:
        by = current_access.get()

        def write(connection: Connection) -> MaintenanceNotice | None:
            before = read_maintenance(connection, locks=True)
            after = change(before)
            if after != before:
                put_maintenance(connection, after)
                changes = changes_between(_retry_after(before), _retry_after(after))
                self._audit.append(connection, action, by, changes=changes)
            return after

        maintenance = await self._database.write(write)
        self._log.info(action)
        await self._hold_everywhere()
        return to_maintenance(maintenance)


def _retry_after(maintenance: MaintenanceNotice | None) -> dict[str, int]:
    return {} if maintenance is None else {"retry_after_s": maintenance.retry_after_s}


def to_maintenance(maintenance: MaintenanceNotice | None) -> pb.Maintenance:
    return pb.Maintenance() if maintenance is None else to_message(pb.Maintenance, maintenance, is_on=True)
