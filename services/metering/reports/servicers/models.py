"""Serves the operator's reports across accounts."""

from legato_protos.metering.v1 import reports_pb2 as pb
from legato_protos.metering.v1 import reports_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.rpc.callers import Context
from services.metering.reports.messages.models import from_report, to_report_query
from services.metering.reports.models import read_report


class ReportServicer(reports_pb2_grpc.ReportServiceServicer):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def GetReport(self, request: pb.GetReportRequest, context: Context) -> pb.GetReportResponse:
        return from_report(await self._database.read(read_report, to_report_query(request)))
