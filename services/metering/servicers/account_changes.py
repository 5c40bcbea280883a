"""Implements the outbox of changes for auth, and tells whose change a call makes."""

from functools import partial
from typing import Any, Final

import grpc.aio
from google.protobuf.timestamp_pb2 import Timestamp

from protos.metering.v1 import account_changes_pb2 as pb
from protos.metering.v1 import account_changes_pb2_grpc
from services.chassis.access_tokens import current_access
from services.chassis.database.database import Database
from services.metering.ledger.changes import COMMAND_LINE, AccountChange, ChangedBy
from services.metering.store.changes import acknowledge_changes, list_pending_changes
from services.metering.wire.operations import invalid

Context = grpc.aio.ServicerContext[Any, Any]

PAGE_MOST: Final = 1_000


def current_user() -> ChangedBy:
    """Returns who made the current call."""
    access = current_access.get()
    return COMMAND_LINE if access is None else ChangedBy(access.user_id, access.session_id)


class ChangeOutboxServicer(account_changes_pb2_grpc.ChangeOutboxServiceServicer):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def ListPendingChanges(
        self, request: pb.ListPendingChangesRequest, context: Context
    ) -> pb.ListPendingChangesResponse:
        most = request.page_size or PAGE_MOST
        if not 0 < most <= PAGE_MOST:
            raise invalid(f"A page has at most {PAGE_MOST} changes.", "page_size")
        pending = await self._database.read(partial(list_pending_changes, most=most))
        return pb.ListPendingChangesResponse(changes=[_from_change(*each) for each in pending])

    async def AcknowledgeChanges(
        self, request: pb.AcknowledgeChangesRequest, context: Context
    ) -> pb.AcknowledgeChangesResponse:
        if len(request.change_ids) > PAGE_MOST:
            raise invalid(f"At most {PAGE_MOST} changes can be acknowledged at once.", "change_ids")
        await self._database.write(partial(acknowledge_changes, change_ids=list(request.change_ids)))
        return pb.AcknowledgeChangesResponse()


def _from_change(change_id: str, change: AccountChange) -> pb.PendingChange:
    recorded = Timestamp()
    recorded.FromMicroseconds(change.recorded_at_us)
    return pb.PendingChange(
        change_id=change_id,
        action=change.action,
        account_id=change.account_id,
        key_id=change.key_id,
        user_id=change.user_id,
        session_id=change.session_id,
        record_time=recorded,
    )
