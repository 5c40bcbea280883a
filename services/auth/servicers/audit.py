"""Implements the RPCs of AuditService: lists what the audit log tells operators, owners and users, and notes what
operators do in other services."""

from typing import Final

from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1 import users_pb2_grpc as pb_grpc
from services.auth import checks, paging
from services.auth.paging import Position
from services.auth.parts import Domain, is_operator, reads, writes
from services.auth.store import Connection
from services.auth.store import audit as stored
from services.auth.store.accounts import lock_account
from services.auth.store.users import names_of
from services.chassis.access_tokens import Access, AccountRole, current_access
from services.chassis.rpc.access_check import role_missing
from services.chassis.rpc.messages import to_message
from services.chassis.rpc.server import Context

# Noted before they are done: a booking that fails was requested all the same.
_ACTION_NAMES: Final[dict[int, str]] = {
    pb.OPERATOR_ACTION_GRANT_CREDIT: "credit.grant_requested",
    pb.OPERATOR_ACTION_ADJUST_CREDIT: "credit.adjustment_requested",
    pb.OPERATOR_ACTION_RELOAD_ROUTES: "routes.reload_requested",
    pb.OPERATOR_ACTION_AUDIT_LEDGER: "ledger.audit_requested",
    pb.OPERATOR_ACTION_SET_SPEND_LIMITS: "spend_limits.change_requested",
    pb.OPERATOR_ACTION_WRITE_ROUTES: "routes.change_requested",
    pb.OPERATOR_ACTION_TRY_MODEL: "model.trial_requested",
    pb.OPERATOR_ACTION_RESUME_CANARY: "canary.resume_requested",
}


class AuditServicer(Domain, pb_grpc.AuditServiceServicer):
    @reads
    def ListAuditEvents(
        self, connection: Connection, request: pb.ListAuditEventsRequest, context: Context
    ) -> pb.ListAuditEventsResponse:
        """Lists audit events, the newest first, with the names of their users: all, or those that every filter fits."""
        size, after = paging.page_size(request.page_size), paging.page_token(request.page_token)
        by, filters = current_access.get(), (request.account_id, request.user_id, request.action)
        if by is not None and not _may_list(by, request.account_id, request.user_id):
            raise role_missing()
        found = stored.list_events(connection, None if after is None else after.created_at_us, size + 1, *filters)
        page = paging.to_page(found, size, lambda event: Position(event.event_no, "event"))
        names = names_of(connection, [event.user_id for event in page.items])
        events = [to_message(pb.AuditEvent, event, user_name=names.get(event.user_id, "")) for event in page.items]
        return pb.ListAuditEventsResponse(events=events, next_page_token=page.next_token)

    async def VerifyAuditEvents(
        self, request: pb.VerifyAuditEventsRequest, context: Context
    ) -> pb.VerifyAuditEventsResponse:
        events, broken = await self._database.read(self._audit.verify)
        return pb.VerifyAuditEventsResponse(events=events, broken_event_nos=broken)

    @writes
    def RecordOperatorAction(
        self, connection: Connection, request: pb.RecordOperatorActionRequest, context: Context
    ) -> pb.RecordOperatorActionResponse:
        """Notes what an operator is about to do in another service."""
        by, action = current_access.get(), _ACTION_NAMES.get(request.action)
        account_id, object_id = request.account_id, request.object_id
        if action is None:
            raise checks.refusal("action", "The action is not known.")
        if object_id:
            checks.id_of("booking", object_id.replace("-", "_"))
        # Metering knows no accounts, only balances: a mistyped id would create credit that no account has.
        if account_id:
            lock_account(connection, checks.id_of("account", account_id))
        self._audit.append(connection, action, by, account_id=account_id, object_id=object_id)
        return pb.RecordOperatorActionResponse()


def _may_list(by: Access, account_id: str, user_id: str) -> bool:
    is_owner = by.role is AccountRole.OWNER and account_id == by.account_id != ""
    return is_operator(by) or is_owner or user_id == by.user_id
