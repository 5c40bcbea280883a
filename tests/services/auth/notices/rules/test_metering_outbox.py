"""Changes that metering recorded arrive in the audit log, once, with who made them."""

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.auth_pb2_grpc import AuthServiceStub
from legato_protos.metering.v1 import outbox_pb2
from services.auth.notices.rules.metering_outbox import take_over
from services.auth.service import AuthService
from services.chassis.changes import Change, from_changes, to_changes
from services.chassis.database.database import Database
from tests.services.auth.console import Console
from tests.services.auth.notices.outbox import Outbox
from tests.support.fakes import FakeClock


async def events_of(console: Console, account_id: str, token: bytes) -> list[pb.AuditEvent]:
    request = pb.ListAuditEventsRequest(account_id=account_id)
    return list((await console.call(console.audit.ListAuditEvents, request, token)).events)


async def test_a_change_of_a_limit_is_in_the_accounts_audit_log_once_whatever_is_lost(
    auth: AuthService, console: Console, clock: FakeClock, database: Database
) -> None:
    account_id = await console.create_account()
    signed_in, token = await console.signed_in(account_id)
    user_id = signed_in.user.user_id
    listing = pb.ListSessionsRequest()
    [session] = (await console.call(console.user.ListSessions, listing, token)).sessions
    occurred = Timestamp()
    occurred.FromDatetime(clock.now())
    clock.advance(30)
    shared: dict[str, Any] = {"account_id": account_id, "record_time": occurred}
    changes = [
        outbox_pb2.PendingChange(
            change_id="chg_1",
            action="spend_limits.changed",
            key_id="key_one",
            user_id=user_id,
            session_id=session.session_id,
            changes=from_changes([Change("spend_day_nanos", 5, 10), Change("of_a_later_release", None, 1)]),
            **shared,
        ),
        outbox_pb2.PendingChange(change_id="chg_2", action="low_balance.changed", **shared),
    ]
    outbox: Any = Outbox(changes=changes)
    outbox.loses_acknowledgements = True
    now_us, recorder = auth.sessions.now_us(), auth.notice_loop._recorder
    for _ in range(2):
        # As if this process ended before it could acknowledge.
        with pytest.raises(ConnectionError):
            await take_over(database, outbox, recorder, auth.parts.audit, now_us)
    outbox.loses_acknowledgements = False
    await take_over(database, outbox, recorder, auth.parts.audit, now_us)
    assert not outbox.pending.changes
    by_command_line, by_owner, *_ = await events_of(console, account_id, token)
    assert (by_owner.action, by_owner.object_id) == ("spend_limits.changed", "key_one")
    assert (by_owner.user_id, by_owner.user_name, by_owner.network) == (user_id, "Ada", "192.0.2.0/24")
    assert by_owner.time == occurred
    assert to_changes(by_owner.changes) == [Change("spend_day_nanos", 5, 10)]
    assert (by_command_line.action, by_command_line.object_id) == ("low_balance.changed", account_id)
    assert by_command_line.user_id == ""
    actions = [event.action for event in await events_of(console, account_id, token)]
    assert actions.count("spend_limits.changed") == actions.count("low_balance.changed") == 1
    whole = await console.call(console.admin_audit.VerifyAuditEvents, pb.VerifyAuditEventsRequest())
    assert not whole.broken_event_nos


async def test_maintenance_is_in_the_audit_log(console: Console) -> None:
    maintenance: Any = AuthServiceStub(console.admin_channel)
    for _ in range(2):
        await console.call(maintenance.StartMaintenance, auth_pb2.StartMaintenanceRequest(message="Back at noon."))
    await console.call(maintenance.EndMaintenance, auth_pb2.EndMaintenanceRequest())
    listing = pb.ListAuditEventsRequest(action="maintenance")
    events = (await console.call(console.admin_audit.ListAuditEvents, listing)).events
    assert [event.action for event in events] == ["maintenance.ended", "maintenance.started"]
