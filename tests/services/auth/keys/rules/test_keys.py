"""What members of an account may do, and what they may not."""

from typing import Any

import pytest

from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.type.v1.class_allowance_pb2 import ClassAllowance
from services.chassis.access_tokens import Access, AccessTokenSigner, AccountRole
from services.chassis.errors import Reason
from tests.services.auth.console import MEMBER, OWNER, VIEWER, Console
from tests.support.fakes import FakeClock


async def create_key(console: Console, account_id: str, token: bytes, **given: object) -> auth_pb2.Key:
    fields: Any = {"name": "laptop", **given}
    request = auth_pb2.CreateKeyRequest(account_id=account_id, **fields)
    return (await console.call(console.key_admin.CreateKey, request, token)).key  # type: ignore[no-any-return]


async def test_a_token_of_one_account_is_refused_in_another(console: Console) -> None:
    own, other = await console.create_account(), await console.create_account()
    _, token = await console.signed_in(own)
    for account_id, expected in ((own, None), (other, Reason.ROLE_MISSING), ("", Reason.ROLE_MISSING)):
        request = auth_pb2.ListKeysRequest(account_id=account_id)
        assert await console.reason(console.key_admin.ListKeys, request, token) is expected


async def test_a_token_that_the_console_made_is_refused(console: Console, clock: FakeClock) -> None:
    account_id = await console.create_account()
    signed_in, _ = await console.signed_in(account_id)
    now_us = int(clock.now().timestamp() * 1e6)
    made = AccessTokenSigner("55" * 32).sign(
        Access(
            signed_in.user.user_id,
            signed_in.session.session_id,
            account_id,
            AccountRole.OWNER,
            True,
            now_us,
            now_us + 60_000_000,
        )
    )
    request = auth_pb2.ListKeysRequest(account_id=account_id)
    assert await console.reason(console.key_admin.ListKeys, request, made) is Reason.ACCESS_TOKEN_INVALID
    assert await console.reason(console.key_admin.ListKeys, request) is Reason.ACCESS_TOKEN_INVALID


async def test_a_token_is_refused_after_a_minute(console: Console, clock: FakeClock) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    clock.advance(60)
    request = auth_pb2.ListKeysRequest(account_id=account_id)
    assert await console.reason(console.key_admin.ListKeys, request, token) is Reason.ACCESS_TOKEN_INVALID


async def test_what_grants_access_needs_a_recent_proof_and_what_removes_it_does_not(
    console: Console, clock: FakeClock
) -> None:
    account_id = await console.create_account()
    signed_in, token = await console.signed_in(account_id)
    key = await create_key(console, account_id, token)
    clock.advance(600)
    token = (await console.resolve(signed_in.session_token)).access_token
    create = auth_pb2.CreateKeyRequest(account_id=account_id, name="phone")
    assert await console.reason(console.key_admin.CreateKey, create, token) is Reason.STEP_UP_REQUIRED
    revoke = auth_pb2.RevokeKeyRequest(account_id=account_id, key_id=key.key_id)
    assert await console.reason(console.key_admin.RevokeKey, revoke, token) is None


async def test_members_change_their_own_keys_and_viewers_none(console: Console) -> None:
    account_id = await console.create_account()
    (_, owner), (_, member), (_, viewer) = [
        await console.signed_in(account_id, role) for role in (OWNER, MEMBER, VIEWER)
    ]
    of_owner, of_member = [await create_key(console, account_id, token) for token in (owner, member)]

    async def rename(key: auth_pb2.Key, token: bytes) -> Reason | None:
        request = auth_pb2.RenameKeyRequest(account_id=account_id, key_id=key.key_id, name="renamed")
        return await console.reason(console.key_admin.RenameKey, request, token)

    assert [await rename(of_member, token) for token in (owner, member, viewer)] == [None, None, Reason.ROLE_MISSING]
    assert await rename(of_owner, member) is Reason.ROLE_MISSING
    request = auth_pb2.ListKeysRequest(account_id=account_id)
    listed = (await console.call(console.key_admin.ListKeys, request, member)).keys
    assert {(key.name, key.may_change) for key in listed} == {("laptop", False), ("renamed", True)}
    invite = pb.InviteMemberRequest(account_id=account_id, role=VIEWER)
    assert await console.reason(console.account.InviteMember, invite, member) is Reason.ROLE_MISSING


async def test_pages_of_keys_lead_forwards_and_back(console: Console, clock: FakeClock) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    made: list[str] = []
    for number in range(7):
        clock.advance(1)
        # The newest is the first.
        made.insert(0, (await create_key(console, account_id, token, name=f"key {number}")).key_id)

    async def page(page_token: str, **others: Any) -> auth_pb2.ListKeysResponse:
        request = auth_pb2.ListKeysRequest(
            account_id=account_id, page_size=3, page_token=page_token, newest_first=True, **others
        )
        listed: auth_pb2.ListKeysResponse = await console.call(console.key_admin.ListKeys, request, token)
        return listed

    def ids(listed: auth_pb2.ListKeysResponse) -> list[str]:
        return [each.key_id for each in listed.keys]

    first = await page("")
    second = await page(first.next_page_token)
    third = await page(second.next_page_token)
    assert [ids(first), ids(second), ids(third)] == [made[:3], made[3:6], made[6:]]
    assert (first.previous_page_token, third.next_page_token) == ("", "")
    back = await page(third.previous_page_token)
    assert ids(back) == ids(second)
    assert ids(await page(back.next_page_token)) == ids(third)
    again = await page(back.previous_page_token)
    assert (ids(again), again.previous_page_token) == (ids(first), "")
    found = await page("", search="KEY 4", also_key_ids=[made[0], made[6], "key_0000000000000000"])
    assert ids(found) == [made[2]]
    assert {each.name for each in found.also_keys} == {"key 0", "key 6"}
    for page_token in ("~", "~x", "~~" + first.next_page_token):
        request = auth_pb2.ListKeysRequest(account_id=account_id, page_token=page_token)
        expected = None if page_token == "~" else Reason.REQUEST_INVALID
        assert await console.reason(console.key_admin.ListKeys, request, token) is expected, page_token
    too_long = auth_pb2.ListKeysRequest(account_id=account_id, search="x" * 101)
    assert await console.reason(console.key_admin.ListKeys, too_long, token) is Reason.REQUEST_INVALID


async def test_keys_of_other_accounts_are_not_named(console: Console) -> None:
    account_id, other_id = [await console.create_account() for _ in range(2)]
    (_, token), (_, other) = [await console.signed_in(each) for each in (account_id, other_id)]
    theirs = await create_key(console, other_id, other)
    request = auth_pb2.ListKeysRequest(account_id=account_id, also_key_ids=[theirs.key_id])
    assert not (await console.call(console.key_admin.ListKeys, request, token)).also_keys


async def test_a_form_that_is_sent_twice_creates_one_key(console: Console) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    request = auth_pb2.CreateKeyRequest(account_id=account_id, name="laptop", form_id="form1")
    first, second = [await console.call(console.key_admin.CreateKey, request, token) for _ in range(2)]
    assert first.api_key.startswith("sk-legato-")
    assert (second.api_key, second.key.key_id) == ("", first.key.key_id)


async def test_a_rotated_key_names_the_one_it_replaces_and_is_like_it(console: Console) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    allowance = ClassAllowance(class_ids=["mezzo", "fortissimo"])
    before = await create_key(
        console, account_id, token, scopes=[auth_pb2.SCOPE_USAGE], requests_per_minute=7, allowed_classes=allowance
    )
    # What the account does not allow any more, it cannot use, but that is no reason to refuse a rotation.
    narrowed = auth_pb2.UpdateAccountRequest(account_id=account_id, allowed_classes=ClassAllowance(class_ids=["mezzo"]))
    await console.call(console.account_admin.UpdateAccount, narrowed, token)
    request = auth_pb2.RotateKeyRequest(account_id=account_id, key_id=before.key_id)
    after = (await console.call(console.key_admin.RotateKey, request, token)).key
    assert after.replaces_key_id == before.key_id
    assert (before.name, after.name) == ("laptop", "laptop (2)")
    assert (list(after.scopes), after.requests_per_minute) == ([auth_pb2.SCOPE_USAGE], 7)
    assert after.allowed_classes == allowance
    identify = auth_pb2.GetKeyRequest(account_id=account_id, key_id=before.key_id)
    identified = await console.call(console.key_admin.GetKey, identify, token)
    found = identified.key
    assert identified.replaced_by.key_id == after.key_id
    assert not identified.HasField("replaced")
    identify.key_id = after.key_id
    identified = await console.call(console.key_admin.GetKey, identify, token)
    assert identified.replaced.key_id == before.key_id
    assert not identified.HasField("replaced_by")
    assert found.state == auth_pb2.KEY_STATE_ACTIVE


async def test_a_key_of_another_account_is_not_found(console: Console) -> None:
    own, other = await console.create_account(), await console.create_account()
    _, token = await console.signed_in(own)
    _, other_token = await console.signed_in(other)
    key_id = (await create_key(console, other, other_token)).key_id
    revoke = auth_pb2.RevokeKeyRequest(account_id=own, key_id=key_id)
    assert await console.reason(console.key_admin.RevokeKey, revoke, token) is Reason.NOT_FOUND
    identify = auth_pb2.GetKeyRequest(account_id=own, key_id=key_id)
    assert await console.reason(console.key_admin.GetKey, identify, token) is Reason.NOT_FOUND


async def test_a_key_is_given_no_class_that_its_account_may_not_use(console: Console) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    narrowed = auth_pb2.UpdateAccountRequest(
        account_id=account_id, allowed_classes=ClassAllowance(class_ids=["mezzo", "forte"])
    )
    await console.call(console.account_admin.UpdateAccount, narrowed, token)
    key = await create_key(console, account_id, token, allowed_classes=ClassAllowance(class_ids=["forte"]))
    widened = auth_pb2.UpdateKeyRequest(
        account_id=account_id, key_id=key.key_id, allowed_classes=ClassAllowance(class_ids=["fortissimo"])
    )
    assert await console.reason(console.key_admin.UpdateKey, widened, token) is Reason.REQUEST_INVALID
    other = auth_pb2.UpdateKeyRequest(account_id=account_id, key_id=key.key_id, allow_all_classes=True)
    changed = await console.call(console.key_admin.UpdateKey, other, token)
    assert not changed.key.HasField("allowed_classes")


async def test_a_key_gets_no_higher_limit_than_its_account(console: Console) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    limited = auth_pb2.UpdateAccountRequest(account_id=account_id, requests_per_minute=10)
    await console.call(console.accounts.UpdateAccount, limited)
    key = await create_key(console, account_id, token, requests_per_minute=10)
    raised = auth_pb2.UpdateKeyRequest(account_id=account_id, key_id=key.key_id, requests_per_minute=11)
    assert await console.reason(console.key_admin.UpdateKey, raised, token) is Reason.REQUEST_INVALID


async def test_an_account_tells_what_its_keys_have_without_limits(console: Console) -> None:
    account_id = await console.create_account()
    signed_in, token = await console.signed_in(account_id)
    request = auth_pb2.GetAccountRequest(account_id=account_id)
    account = (await console.call(console.account_admin.GetAccount, request, token)).account
    assert account.default_limits == auth_pb2.RateLimits(requests_per_minute=3_000)
    assert (await console.resolve(signed_in.session_token)).account == account


async def test_the_public_console_can_do_nothing_as_an_operator(console: Console) -> None:
    signed_in, _ = await console.signed_in(await console.create_account())
    request = pb.SetOperatorRequest(user_id=signed_in.user.user_id, is_operator=True)
    await console.call(console.admin.SetOperator, request)
    token = (await console.resolve(signed_in.session_token)).access_token
    assert await console.reason(console.operators.ListUsers, pb.ListUsersRequest(), token) is Reason.CALLER_NOT_ALLOWED


class TestOperatorsConsole:
    @pytest.fixture
    def console_role(self) -> str:
        return "operator-console"

    async def test_only_operators_use_it(self, console: Console) -> None:
        signed_in, token = await console.signed_in(await console.create_account())
        listing = pb.ListUsersRequest()
        assert await console.reason(console.operators.ListUsers, listing, token) is Reason.ROLE_MISSING
        request = pb.SetOperatorRequest(user_id=signed_in.user.user_id, is_operator=True)
        await console.call(console.admin.SetOperator, request)
        token = (await console.resolve(signed_in.session_token)).access_token
        assert await console.reason(console.operators.ListUsers, listing, token) is None

        request.is_operator = False
        await console.call(console.admin.SetOperator, request)
        assert await console.reason(console.operators.ListUsers, listing, token) is Reason.ROLE_MISSING
