"""Implements the RPCs of AuditService: converts messages to calls of the domain, and back."""

from typing import Final

from protos.auth.v1 import users_pb2 as pb
from protos.auth.v1 import users_pb2_grpc as pb_grpc
from services.auth import checks
from services.auth.users.audit_events import AuditEvents
from services.chassis.rpc.messages import to_message
from services.chassis.rpc.server import Context

# Noted before they are done: a booking that fails was requested all the same.
_ACTION_NAMES: Final[dict[int, str]] = {
    pb.OPERATOR_ACTION_GRANT_CREDIT: "credit.grant_requested",
    pb.OPERATOR_ACTION_ADJUST_CREDIT: "credit.adjustment_requested",
    pb.OPERATOR_ACTION_RELOAD_ROUTES: "routes.reload_requested",
    pb.OPERATOR_ACTION_AUDIT_LEDGER: "ledger.audit_requested",
    pb.OPERATOR_ACTION_SET_SPEND_LIMITS: "spend_limits.change_requested",
}


class AuditServicer(pb_grpc.AuditServiceServicer):
    def __init__(self, events: AuditEvents) -> None:
        self._events = events

    async def ListAuditEvents(self, request: pb.ListAuditEventsRequest, context: Context) -> pb.ListAuditEventsResponse:
        page, names = await self._events.list_page(
            request.page_size,
            request.page_token,
            account_id=request.account_id,
            user_id=request.user_id,
            action=request.action,
        )
        events = [to_message(pb.AuditEvent, event, user_name=names.get(event.user_id, "")) for event in page.items]
        return pb.ListAuditEventsResponse(events=events, next_page_token=page.next_token)

    async def VerifyAuditEvents(
        self, request: pb.VerifyAuditEventsRequest, context: Context
    ) -> pb.VerifyAuditEventsResponse:
        events, broken = await self._events.verify()
        return pb.VerifyAuditEventsResponse(events=events, broken_event_nos=broken)

    async def RecordOperatorAction(
        self, request: pb.RecordOperatorActionRequest, context: Context
    ) -> pb.RecordOperatorActionResponse:
        action = _ACTION_NAMES.get(request.action)
        if action is None:
            raise checks.refusal("action", "The action is not known.")
        await self._events.record(action, request.account_id, request.object_id)
        return pb.RecordOperatorActionResponse()
