"""Implements ChatOutcomeService: what an account's owner may read of failures and times."""

from legato_protos.metering.v1 import chat_outcomes_pb2 as pb
from legato_protos.metering.v1 import chat_outcomes_pb2_grpc
from services.chassis.database.database import Database
from services.chassis.rpc.callers import Context
from services.metering.reports.chat_outcomes import report_outcomes
from services.metering.reports.messages.chat_outcomes import from_outcomes, to_outcomes_query


class ChatOutcomeServicer(chat_outcomes_pb2_grpc.ChatOutcomeServiceServicer):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def GetChatOutcomes(self, request: pb.GetChatOutcomesRequest, context: Context) -> pb.GetChatOutcomesResponse:
        query = to_outcomes_query(request)
        return from_outcomes(await self._database.read(report_outcomes, query))
