"""Implements the outbox that auth takes over from: notices to owners, and changes for the audit log."""

from typing import Final

from legato_protos.metering.v1 import outbox_pb2 as pb
from legato_protos.metering.v1 import outbox_pb2_grpc
from services.chassis.changes import from_changes, from_json
from services.chassis.database.database import Database
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence
from services.metering.credit.store.outbox import (
    acknowledge_changes,
    acknowledge_notices,
    list_pending_changes,
    list_pending_notices,
)
from services.metering.messages import invalid

PAGE_MOST: Final = 1_000


class OutboxServicer(outbox_pb2_grpc.OutboxServiceServicer):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def ListPending(self, request: pb.ListPendingRequest, context: Context) -> pb.ListPendingResponse:
        most = request.page_size or PAGE_MOST
        if not 0 < most <= PAGE_MOST:
            raise invalid(Sentence("outbox_page_most", most=PAGE_MOST), "page_size")
        notices = await self._database.read(list_pending_notices, most)
        changes = await self._database.read(list_pending_changes, most)
        return pb.ListPendingResponse(
            notices=[to_message(pb.PendingNotice, notice) for notice in notices],
            changes=[
                to_message(
                    pb.PendingChange, change, change_id=change_id, changes=from_changes(from_json(change.changes))
                )
                for change_id, change in changes
            ],
        )

    async def Acknowledge(self, request: pb.AcknowledgeRequest, context: Context) -> pb.AcknowledgeResponse:
        if max(len(request.notice_ids), len(request.change_ids)) > PAGE_MOST:
            raise invalid(Sentence("acknowledged_most", most=PAGE_MOST), "notice_ids")
        await self._database.write(acknowledge_notices, list(request.notice_ids))
        await self._database.write(acknowledge_changes, list(request.change_ids))
        return pb.AcknowledgeResponse()
