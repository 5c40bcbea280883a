"""What becomes of the keys that a member made, when they leave the account."""

import asyncio
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.parts import HOLDS_EVERYWHERE_AFTER_S
from services.auth.keys.rules.keys import Keys
from services.auth.keys.rules.spend_limits import SpendLimiter
from services.auth.keys.store.epochs import changes_since
from services.auth.keys.store.tables import epoch
from services.auth.service import AuthService
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import CLIENT, MEMBER, VIEWER, Console
from tests.services.auth.keys.rules.test_keys import create_key

pytestmark = pytest.mark.sqlite_suffices


class Leaving(NamedTuple):
    """A member with two keys and a playground, beside an owner with a key."""

    account_id: str
    user_id: str
    owner: bytes
    token: bytes
    key_ids: list[str]
    owner_key_id: str


@pytest.fixture
async def leaving(console: Console) -> Leaving:
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id)
    member, token = await console.signed_in(account_id, MEMBER)
    key_ids = [(await create_key(console, account_id, token)).key_id for _ in range(2)]
    owner_key_id = (await create_key(console, account_id, owner)).key_id
    playground = pb.CreatePlaygroundTokenRequest(account_id=account_id)
    await console.call(console.account.CreatePlaygroundToken, playground, token)
    return Leaving(account_id, member.user.user_id, owner, token, key_ids, owner_key_id)


async def states(console: Console, leaving: Leaving) -> dict[str, int]:
    request = auth_pb2.ListKeysRequest(account_id=leaving.account_id)
    listed = await console.call(console.key_admin.ListKeys, request, leaving.owner)
    return {each.key_id: each.state for each in listed.keys}


async def test_a_member_who_is_removed_loses_the_keys_that_they_made(
    console: Console, leaving: Leaving, auth: AuthService, sleep: FakeSleep, database: Database
) -> None:
    made = auth_pb2.ListKeysRequest(account_id=leaving.account_id, created_by=leaving.user_id)
    listed = await console.call(console.key_admin.ListKeys, made, leaving.owner)
    assert {each.key_id for each in listed.keys} == set(leaving.key_ids)
    with database.transaction(writes=False) as connection:
        before = connection.execute(sa.select(epoch.c.value)).scalar_one()
    sleep.waits_s.clear()
    request = pb.RemoveMemberRequest(account_id=leaving.account_id, user_id=leaving.user_id)
    removed = await console.call(console.account.RemoveMember, request, leaving.owner)
    assert set(removed.revoked_key_ids) == set(leaving.key_ids)
    # Edges are told of each, and the call returns when none of them accepts one.
    assert sleep.waits_s == [HOLDS_EVERYWHERE_AFTER_S]
    with database.transaction(writes=False) as connection:
        told = changes_since(connection, before)
    # The playground's token is the other.
    assert {each for each in told.refused_key_ids if each.startswith("key_")} == set(leaving.key_ids)
    revoked, active = auth_pb2.KEY_STATE_REVOKED, auth_pb2.KEY_STATE_ACTIVE
    assert await states(console, leaving) == {
        **dict.fromkeys(leaving.key_ids, revoked),
        leaving.owner_key_id: active,
    }
    events = pb.ListAuditEventsRequest(account_id=leaving.account_id, page_size=3)
    found = (await console.call(console.audit.ListAuditEvents, events, leaving.owner)).events
    assert {(event.action, event.object_id) for event in found} == {
        ("member.removed", leaving.user_id),
        *(("key.revoked", key_id) for key_id in leaving.key_ids),
    }


async def test_an_owner_keeps_keys_that_programs_use(console: Console, leaving: Leaving, sleep: FakeSleep) -> None:
    kept, lost = leaving.key_ids
    request = pb.RemoveMemberRequest(account_id=leaving.account_id, user_id=leaving.user_id, kept_key_ids=[kept])
    removed = await console.call(console.account.RemoveMember, request, leaving.owner)
    assert list(removed.revoked_key_ids) == [lost]
    found = await states(console, leaving)
    assert (found[kept], found[lost]) == (auth_pb2.KEY_STATE_ACTIVE, auth_pb2.KEY_STATE_REVOKED)


async def test_only_keys_of_the_member_are_kept_and_only_by_owners(console: Console, leaving: Leaving) -> None:
    request = pb.RemoveMemberRequest(account_id=leaving.account_id, user_id=leaving.user_id)
    request.kept_key_ids.append(leaving.owner_key_id)
    assert await console.reason(console.account.RemoveMember, request, leaving.owner) is Reason.NOT_FOUND
    request.kept_key_ids[:] = leaving.key_ids
    assert await console.reason(console.account.RemoveMember, request, leaving.token) is Reason.ROLE_MISSING
    assert set((await states(console, leaving)).values()) == {auth_pb2.KEY_STATE_ACTIVE}
    # They may leave all the same, without them.
    del request.kept_key_ids[:]
    assert await console.reason(console.account.RemoveMember, request, leaving.token) is None
    found = await states(console, leaving)
    assert {found[key_id] for key_id in leaving.key_ids} == {auth_pb2.KEY_STATE_REVOKED}


async def test_a_key_that_is_created_while_its_maker_is_removed_does_not_work(
    auth: AuthService, console: Console, leaving: Leaving
) -> None:
    """Whichever comes first, no key of theirs is left."""
    create = auth_pb2.CreateKeyRequest(account_id=leaving.account_id, name="late")
    remove = pb.RemoveMemberRequest(account_id=leaving.account_id, user_id=leaving.user_id)
    creating = [
        asyncio.create_task(console.reason(console.key_admin.CreateKey, create, leaving.token)) for _ in range(8)
    ]
    await console.call(console.account.RemoveMember, remove, leaving.owner)
    assert set(await asyncio.gather(*creating)) <= {None, Reason.ROLE_MISSING}
    # As if the check of the token had come before the removal, and the key after it.
    by = Access(leaving.user_id, "ses_x", leaving.account_id, AccountRole.MEMBER, False, 0, 0)
    with pytest.raises(LegatoError) as refused:
        await Keys(auth.parts, SpendLimiter(None)).create(by, leaving.account_id, "late")
    assert refused.value.reason is Reason.ROLE_MISSING
    found = await states(console, leaving)
    assert [key_id for key_id, state in found.items() if state == auth_pb2.KEY_STATE_ACTIVE] == [leaving.owner_key_id]


async def test_an_invitation_tells_who_invites_and_is_accepted_once(console: Console) -> None:
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id)
    invite = pb.InviteMemberRequest(account_id=account_id, email="grace@example.ca", role=MEMBER)
    code = (await console.call(console.account.InviteMember, invite, owner)).code
    told = await console.call(console.sign_in.GetInvitation, pb.GetInvitationRequest(code=code))
    assert (told.account_name, told.invited_by, told.role) == ("Acme", "Ada", MEMBER)

    accept = pb.AcceptInvitationRequest(code=code, name="Grace", client=CLIENT)
    accepted = await console.call(console.sign_in.AcceptInvitation, accept)
    resolved = await console.resolve(accepted.signed_in.session_token)
    assert (resolved.user.name, [held.role for held in resolved.memberships]) == ("Grace", [MEMBER])
    assert not resolved.user.is_operator
    assert await console.reason(console.sign_in.AcceptInvitation, accept) is Reason.SIGN_IN_FAILED


async def test_an_invitation_gives_a_signed_in_user_another_account(console: Console) -> None:
    own, other = await console.create_account(), await console.create_account()
    signed_in, _ = await console.signed_in(own)
    _, owner = await console.signed_in(other)
    invite = pb.InviteMemberRequest(account_id=other, role=VIEWER)
    code = (await console.call(console.account.InviteMember, invite, owner)).code
    accept = pb.AcceptInvitationRequest(code=code, session_token=signed_in.session_token, client=CLIENT)
    accepted = await console.call(console.sign_in.AcceptInvitation, accept)
    assert not accepted.HasField("signed_in")
    resolved = await console.resolve(signed_in.session_token, other)
    assert resolved.account_id == other
    assert {held.account_id for held in resolved.memberships} == {own, other}


async def test_a_removed_member_and_a_lower_role_take_effect_at_once(console: Console) -> None:
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id)
    other, token = await console.signed_in(account_id)
    user_id = other.user.user_id
    lower = pb.ChangeMemberRoleRequest(account_id=account_id, user_id=user_id, role=VIEWER)
    await console.call(console.account.ChangeMemberRole, lower, owner)
    create = auth_pb2.CreateKeyRequest(account_id=account_id, name="laptop")
    assert await console.reason(console.key_admin.CreateKey, create, token) is Reason.ROLE_MISSING

    remove = pb.RemoveMemberRequest(account_id=account_id, user_id=user_id)
    await console.call(console.account.RemoveMember, remove, owner)
    listing = auth_pb2.ListKeysRequest(account_id=account_id)
    assert await console.reason(console.key_admin.ListKeys, listing, token) is Reason.ROLE_MISSING


async def test_the_last_owner_stays(console: Console) -> None:
    account_id = await console.create_account()
    owner, token = await console.signed_in(account_id)
    user_id = owner.user.user_id
    leave = pb.RemoveMemberRequest(account_id=account_id, user_id=user_id)
    assert await console.reason(console.account.RemoveMember, leave, token) is Reason.REQUEST_INVALID
    lower = pb.ChangeMemberRoleRequest(account_id=account_id, user_id=user_id, role=VIEWER)
    assert await console.reason(console.account.ChangeMemberRole, lower, token) is Reason.REQUEST_INVALID
