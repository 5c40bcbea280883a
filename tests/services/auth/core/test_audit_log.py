import hmac

import msgspec
import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.audit_log import AuditLog
from services.auth.core.peppers import Peppers
from services.auth.core.records.audit import AuditEvent, ChainedEvent, Outcome
from services.chassis.changes import Change
from services.chassis.database.database import Database
from tests.services.auth.console import Console
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices

PEPPER = b"a pepper for tests, 32 bytes long"
# What release 0.2 computed for this event after a code of 32 times 1.
OLD_EVENT = AuditEvent(
    7, 1_790_000_000_000_000, "key.created", "user_1", "acct_1", "key_1", "ses_1", "192.0.2.0/24", Outcome.DONE
)
OLD_CODE = bytes.fromhex("dbe81d4b7c7bf62901b83aff2df7724ff861e3a6c94286175c49ce417e89a550")


def test_events_of_releases_before_keep_their_codes(clock: FakeClock) -> None:
    log = AuditLog(Peppers({1: PEPPER}), clock)
    assert log.is_genuine(ChainedEvent(OLD_EVENT, 1, b"\x01" * 32, OLD_CODE))


def test_the_code_of_an_event_covers_what_it_changed(clock: FakeClock) -> None:
    log = AuditLog(Peppers({1: PEPPER}), clock)
    changed = msgspec.structs.replace(OLD_EVENT, changes=(Change("requests_per_minute", None, 600),))
    content = msgspec.json.encode(OLD_EVENT)[:-1]
    content += b',"changes":[{"field":"requests_per_minute","before":null,"after":600}]}'
    code = hmac.digest(PEPPER, b"legato audit log:" + b"\x01" * 32 + content, "sha256")
    assert log.is_genuine(ChainedEvent(changed, 1, b"\x01" * 32, code))
    assert not log.is_genuine(ChainedEvent(OLD_EVENT, 1, b"\x01" * 32, code))
    assert not log.is_genuine(ChainedEvent(changed, 1, b"\x01" * 32, OLD_CODE))


def test_a_copy_with_changes_is_read_by_the_release_before() -> None:
    class EventBefore(msgspec.Struct):
        """As release 0.2 reads it."""

        event_no: int
        action: str

    changed = msgspec.structs.replace(OLD_EVENT, changes=(Change("scopes", None, ("usage",)),))
    line = msgspec.json.encode(ChainedEvent(changed, 1, b"", OLD_CODE))
    read = msgspec.json.decode(line, type=tuple[EventBefore, int, bytes, bytes])
    assert (read[0].event_no, read[3]) == (7, OLD_CODE)
    assert msgspec.json.decode(line, type=ChainedEvent).event == changed


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
        "UPDATE audit_events SET changes = NULL WHERE event_no = 4",
        "UPDATE audit_events SET changes = replace(changes, '600', '900') WHERE event_no = 4",
        "UPDATE audit_events SET changes = 'not JSON' WHERE event_no = 4",
        "UPDATE audit_events SET changes = '[]' WHERE event_no = 1",
    ],
)
async def test_a_change_of_the_audit_log_breaks_its_chain(console: Console, database: Database, tampering: str) -> None:
    account_id, *_ = [await console.create_account() for _ in range(3)]
    limited = auth_pb2.UpdateAccountRequest(account_id=account_id, requests_per_minute=600)
    await console.call(console.accounts.UpdateAccount, limited)
    whole = await console.call(console.admin_audit.VerifyAuditEvents, pb.VerifyAuditEventsRequest())
    assert (whole.events, list(whole.broken_event_nos)) == (4, [])
    with database.transaction(writes=True) as connection:
        connection.execute(sa.text(tampering))
    broken = await console.call(console.admin_audit.VerifyAuditEvents, pb.VerifyAuditEventsRequest())
    assert broken.broken_event_nos
