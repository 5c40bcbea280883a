"""Implements the reports of routers on the routes file that each has read."""

from legato_protos.metering.v1 import staged_files_pb2 as pb
from legato_protos.metering.v1 import staged_files_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.rpc.callers import Context
from services.chassis.sentence import Sentence
from services.metering.credit.store.staged_files import ROUTES, report_version
from services.metering.messages import invalid


class StagedFileServicer(staged_files_pb2_grpc.StagedFileServiceServicer):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def ReportRoutes(self, request: pb.ReportRoutesRequest, context: Context) -> pb.ReportRoutesResponse:
        if not request.process_id:
            raise invalid(Sentence("process_unnamed"), "process_id")
        arguments = ROUTES, request.process_id, request.version
        return pb.ReportRoutesResponse(is_agreed=await self._database.write(report_version, *arguments))
