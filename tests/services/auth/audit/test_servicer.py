from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from legato_protos.auth.v1 import auth_pb2, notices_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.notices_pb2_grpc import NoticeServiceStub
from legato_protos.type.v1.class_allowance_pb2 import ClassAllowance
from services.auth.core.peppers import Peppers
from services.chassis.changes import Change, from_changes, to_changes
from services.chassis.errors import Reason
from tests.services.auth.console import CLIENT, MEMBER, VIEWER, Console
from tests.services.auth.keys.rules.test_keys import create_key
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices


async def test_the_audit_log_tells_what_was_done_and_by_whom(console: Console) -> None:
    account_id = await console.create_account()
    owner, token = await console.signed_in(account_id)
    key = await create_key(console, account_id, token)
    request = pb.ListAuditEventsRequest(account_id=account_id, page_size=1)
    page = await console.call(console.audit.ListAuditEvents, request, token)
    [event] = page.events
    assert (event.action, event.user_id, event.object_id) == ("key.created", owner.user.user_id, key.key_id)
    assert (event.user_name, event.network) == ("Ada", "192.0.2.0/24")
    request.page_token = page.next_page_token
    before = await console.call(console.audit.ListAuditEvents, request, token)
    assert before.events[0].event_no < event.event_no


async def events_of(console: Console, token: bytes | None = None, **filters: Any) -> list[pb.AuditEvent]:
    audit = console.admin_audit if token is None else console.audit
    listed = await console.call(audit.ListAuditEvents, pb.ListAuditEventsRequest(**filters), token)
    return list(listed.events)


def changes_of(event: pb.AuditEvent) -> list[Change]:
    return to_changes(event.changes)


async def test_events_tell_what_changed_from_what_and_to_what(console: Console) -> None:
    account_id = await console.create_account()
    owner, token = await console.signed_in(account_id)
    member, _ = await console.signed_in(account_id, MEMBER)
    scopes = [auth_pb2.SCOPE_USAGE]
    key = await create_key(console, account_id, token, scopes=scopes, expires_after_days=30, requests_per_minute=60)
    notices: Any = NoticeServiceStub(console.console_channel)
    shared: Any = {"account_id": account_id}
    calls: list[tuple[Any, Any]] = [
        (console.key_admin.UpdateKey, auth_pb2.UpdateKeyRequest(key_id=key.key_id, requests_per_minute=90, **shared)),
        (console.key_admin.RenameKey, auth_pb2.RenameKeyRequest(key_id=key.key_id, name="service", **shared)),
        (
            console.account_admin.UpdateAccount,
            auth_pb2.UpdateAccountRequest(
                search=False, preferred_class="mezzo", allowed_classes=ClassAllowance(class_ids=["mezzo"]), **shared
            ),
        ),
        (
            console.account.ChangeMemberRole,
            pb.ChangeMemberRoleRequest(user_id=member.user.user_id, role=VIEWER, **shared),
        ),
        (notices.SetMutedKinds, notices_pb2.SetMutedKindsRequest(muted_kinds=["balance.low"], **shared)),
        (console.account.RemoveMember, pb.RemoveMemberRequest(user_id=member.user.user_id, **shared)),
    ]
    for method, request in calls:
        await console.call(method, request, token)
    removed, muted, role, account, renamed, updated, created, *_ = await events_of(console, token, **shared)
    expires_at_us = key.expire_time.ToMicroseconds()
    assert changes_of(created) == [
        Change("scopes", None, ("usage",)),
        Change("expires_at_us", None, expires_at_us),
        Change("requests_per_minute", None, 60),
    ]
    assert changes_of(updated) == [Change("requests_per_minute", 60, 90)]
    # Names are data of the account, and not of the log: they are shown as they are now.
    assert (renamed.action, changes_of(renamed)) == ("key.renamed", [])
    assert {created.object_name, updated.object_name, renamed.object_name} == {"service"}
    assert changes_of(account) == [
        Change("preferred_class", "forte", "mezzo"),
        Change("allowed_classes", None, ("mezzo",)),
        Change("search", True, False),
    ]
    assert changes_of(role) == [Change("role", "member", "viewer")]
    assert changes_of(muted) == [Change("muted_kinds", (), ("balance.low",))]
    assert changes_of(removed) == [Change("role", "viewer", None)]
    assert (removed.user_id, removed.account_name) == (owner.user.user_id, "Acme")


async def test_events_are_filtered_by_everything_that_is_given(console: Console, clock: FakeClock) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    first = await create_key(console, account_id, token)
    clock.advance(30)
    later = Timestamp()
    later.FromDatetime(clock.now())
    await create_key(console, account_id, token)
    revoke = auth_pb2.RevokeKeyRequest(key_id=first.key_id, account_id=account_id)
    await console.call(console.key_admin.RevokeKey, revoke, token)
    shared: Any = {"account_id": account_id}
    by_object = await events_of(console, token, object_id=first.key_id, **shared)
    assert [event.action for event in by_object] == ["key.revoked", "key.created"]
    assert [event.action for event in await events_of(console, token, start_time=later, **shared)] == [
        "key.revoked",
        "key.created",
    ]
    before = await events_of(console, token, end_time=later, action="key", **shared)
    assert [event.object_id for event in before] == [first.key_id]
    assert not await events_of(console, token, only_refused=True, **shared)
    wrong = pb.SignInRequest(proof=pb.Proof(sign_in_link_code="0000-0000-0000-0000-0000"), client=CLIENT)
    assert await console.reason(console.sign_in.SignIn, wrong) is not None
    used = (await console.create_user()).code
    await console.use_link(used)
    for event in await events_of(console, only_refused=True):
        assert event.outcome == pb.AUDIT_OUTCOME_REFUSED


async def test_what_is_not_the_readers_is_neither_listed_nor_named(console: Console) -> None:
    account_id, other_id = await console.create_account(), await console.create_account()
    _, owner = await console.signed_in(account_id)
    member, token = await console.signed_in(account_id, MEMBER)
    key = await create_key(console, account_id, token)
    for request in (
        pb.ListAuditEventsRequest(account_id=account_id),
        pb.ListAuditEventsRequest(object_id=key.key_id),
        pb.ListAuditEventsRequest(),
    ):
        assert await console.reason(console.audit.ListAuditEvents, request, token) is Reason.ROLE_MISSING
    listing = pb.ListAuditEventsRequest(account_id=other_id)
    assert await console.reason(console.audit.ListAuditEvents, listing, owner) is Reason.ROLE_MISSING
    own: Any = {"user_id": member.user.user_id, "object_id": key.key_id}
    assert [event.object_name for event in await events_of(console, token, **own)] == ["laptop"]
    remove = pb.RemoveMemberRequest(account_id=account_id, user_id=member.user.user_id, kept_key_ids=[key.key_id])
    await console.call(console.account.RemoveMember, remove, owner)
    # What they did stays theirs to see; what the key is called now does not.
    [seen] = await events_of(console, (await console.resolve(member.session_token)).access_token, **own)
    assert (seen.action, seen.object_name, seen.account_name) == ("key.created", "", "")


async def test_what_an_operator_is_about_to_change_is_told(console: Console) -> None:
    account_id = await console.create_account()
    request = pb.RecordOperatorActionRequest(
        action=pb.OPERATOR_ACTION_GRANT_CREDIT,
        account_id=account_id,
        object_id="booking-1",
        changes=from_changes([Change("amount_nanos", None, 5), Change("note", None, "for Ada")]),
    )
    await console.call(console.admin_audit.RecordOperatorAction, request)
    [event] = await events_of(console, action="credit")
    assert changes_of(event) == [Change("amount_nanos", None, 5)]


async def test_proofs_are_given_to_those_who_ask(console: Console, peppers: Peppers) -> None:
    account_id = await console.create_account()
    [plain] = await events_of(console, account_id=account_id)
    assert not plain.HasField("proof")
    [event] = await events_of(console, account_id=account_id, with_proofs=True)
    assert (event.proof.pepper_version, event.proof.previous_code, len(event.proof.code)) == (1, b"", 32)
