"""Implements the RPCs of AuditService: lists what the audit log tells operators, owners and users, and notes what
operators do in other services."""

from typing import Final

from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1 import users_pb2_grpc as pb_grpc
from services.auth.audit.store.event_names import Names, named_part, names_of_events
from services.auth.core import checks, paging
from services.auth.core.paging import Position
from services.auth.core.parts import Domain, is_operator, reads, writes
from services.auth.core.records.audit import ChainedEvent
from services.auth.core.store import Connection
from services.auth.core.store import audit as stored
from services.auth.core.store.accounts import lock_account
from services.auth.core.store.audit import EventChoice
from services.auth.core.store.users import memberships_of
from services.chassis.access_tokens import Access, AccountRole, current_access
from services.chassis.changes import from_changes, to_changes
from services.chassis.rpc.access_check import role_missing
from services.chassis.rpc.callers import Context
from services.chassis.rpc.messages import to_message
from services.chassis.sentence import Sentence

# Noted before they are done: a booking that fails was requested all the same.
_ACTION_NAMES: Final[dict[int, str]] = {
    pb.OPERATOR_ACTION_GRANT_CREDIT: "credit.grant_requested",
    pb.OPERATOR_ACTION_ADJUST_CREDIT: "credit.adjustment_requested",
    pb.OPERATOR_ACTION_RELOAD_ROUTES: "routes.reload_requested",
    pb.OPERATOR_ACTION_AUDIT_LEDGER: "ledger.audit_requested",
    pb.OPERATOR_ACTION_SET_SPEND_LIMITS: "spend_limits.change_requested",
}


class AuditServicer(Domain, pb_grpc.AuditServiceServicer):
    @reads
    def ListAuditEvents(
        self, connection: Connection, request: pb.ListAuditEventsRequest, context: Context
    ) -> pb.ListAuditEventsResponse:
        """Lists audit events, the newest first, with names as of now: all, or those that every filter fits."""
        size, after = paging.page_size(request.page_size), paging.page_token(request.page_token)
        by = current_access.get()
        if by is not None and not _may_list(by, request.account_id, request.user_id):
            raise role_missing()
        before_no = None if after is None else after.created_at_us
        found = stored.list_events(connection, before_no, size + 1, _choice(request))
        page = paging.to_page(found, size, lambda chained: Position(chained.event.event_no, "event"))
        within, user_id = None, by.user_id if by is not None else ""
        if not is_operator(by):
            within = [held.account_id for held in memberships_of(connection, [user_id])]
        names = names_of_events(connection, [chained.event for chained in page.items], within, user_id)
        return pb.ListAuditEventsResponse(
            events=[_to_event(chained, names, with_proof=request.with_proofs) for chained in page.items],
            next_page_token=page.next_token,
        )

    async def VerifyAuditEvents(
        self, request: pb.VerifyAuditEventsRequest, context: Context
    ) -> pb.VerifyAuditEventsResponse:
        events, broken = await self._database.read(self._audit.verify)
        return pb.VerifyAuditEventsResponse(events=events, broken_event_nos=broken)

    @writes
    def RecordOperatorAction(
        self, connection: Connection, request: pb.RecordOperatorActionRequest, context: Context
    ) -> pb.RecordOperatorActionResponse:
        """Records what an operator is about to do in another service."""
        by, action = current_access.get(), _ACTION_NAMES.get(request.action)
        account_id, object_id = request.account_id, request.object_id
        if action is None:
            raise checks.refusal("action", Sentence("action_unknown"))
        if object_id:
            checks.id_of("booking", object_id.replace("-", "_"))
        # Metering knows no accounts, only balances: a mistyped id would create credit that no account has.
        if account_id:
            lock_account(connection, checks.id_of("account", account_id))
        changes = to_changes(request.changes)
        self._audit.append(connection, action, by, account_id=account_id, object_id=object_id, changes=changes)
        return pb.RecordOperatorActionResponse()


def _choice(request: pb.ListAuditEventsRequest) -> EventChoice:
    return EventChoice(
        account_id=request.account_id,
        user_id=request.user_id,
        object_id=request.object_id,
        action=request.action,
        start_us=request.start_time.ToMicroseconds() if request.HasField("start_time") else None,
        end_us=request.end_time.ToMicroseconds() if request.HasField("end_time") else None,
        only_refused=request.only_refused,
    )


def _to_event(chained: ChainedEvent, names: Names, *, with_proof: bool) -> pb.AuditEvent:
    event = chained.event
    return to_message(
        pb.AuditEvent,
        event,
        user_name=names.get(event.user_id, ""),
        object_name=names.get(named_part(event.object_id), ""),
        account_name=names.get(event.account_id, ""),
        changes=from_changes(event.changes or ()),
        proof=to_message(pb.AuditProof, chained) if with_proof else None,
    )


def _may_list(by: Access, account_id: str, user_id: str) -> bool:
    is_owner = by.role is AccountRole.OWNER and account_id == by.account_id != ""
    return is_operator(by) or is_owner or user_id == by.user_id
