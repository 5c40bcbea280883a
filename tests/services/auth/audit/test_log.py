import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.database.database import Database
from tests.services.auth.console import Console


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE audit_events SET object_id = 'key_other' WHERE event_no = 2",
        "DELETE FROM audit_events WHERE event_no = 2",
        "DELETE FROM audit_events WHERE event_no = (SELECT max(event_no) FROM audit_events)",
        "DELETE FROM audit_events",
        "UPDATE audit_events SET occurred_at_us = occurred_at_us + 1 WHERE event_no = 1",
        "UPDATE audit_events SET previous_code = code WHERE event_no = 3",
        "UPDATE audit_events SET pepper_version = 9 WHERE event_no = 3",
        "UPDATE audit_head SET event_no = event_no + 1",
    ],
)
async def test_a_change_of_the_audit_log_breaks_its_chain(console: Console, database: Database, tampering: str) -> None:
    for _ in range(3):
        await console.create_account()
    whole = await console.call(console.admin_audit.VerifyAuditEvents, pb.VerifyAuditEventsRequest())
    assert (whole.events, list(whole.broken_event_nos)) == (3, [])
    with database.transaction(writes=True) as connection:
        connection.execute(sa.text(tampering))
    broken = await console.call(console.admin_audit.VerifyAuditEvents, pb.VerifyAuditEventsRequest())
    assert broken.broken_event_nos
