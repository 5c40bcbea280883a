"""Implements the RPCs of MaintenanceAdminService: converts messages to calls, and back."""

from protos.auth.v1 import auth_pb2 as pb
from protos.auth.v1 import auth_pb2_grpc as pb_grpc
from services.auth.maintenance import MaintenanceAdmin
from services.auth.records.keys import MaintenanceNotice
from services.chassis.rpc.messages import to_message
from services.chassis.rpc.server import Context


class MaintenanceAdminServicer(pb_grpc.MaintenanceAdminServiceServicer):
    def __init__(self, maintenance: MaintenanceAdmin) -> None:
        self._maintenance = maintenance

    async def StartMaintenance(
        self, request: pb.StartMaintenanceRequest, context: Context
    ) -> pb.StartMaintenanceResponse:
        started = await self._maintenance.start(request.message, request.retry_after_s)
        return pb.StartMaintenanceResponse(maintenance=to_maintenance(started))

    async def EndMaintenance(self, request: pb.EndMaintenanceRequest, context: Context) -> pb.EndMaintenanceResponse:
        await self._maintenance.end()
        return pb.EndMaintenanceResponse(maintenance=to_maintenance(None))

    async def GetMaintenance(self, request: pb.GetMaintenanceRequest, context: Context) -> pb.GetMaintenanceResponse:
        return pb.GetMaintenanceResponse(maintenance=to_maintenance(await self._maintenance.get()))


def to_maintenance(maintenance: MaintenanceNotice | None) -> pb.Maintenance:
    return pb.Maintenance() if maintenance is None else to_message(pb.Maintenance, maintenance, is_on=True)
