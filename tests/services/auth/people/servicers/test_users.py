"""What operators do in auth, by the operators' console: each with its place in the audit log."""

from typing import Any

import pytest

from legato_protos.auth.v1 import accounts_pb2_grpc, auth_pb2, auth_pb2_grpc
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from tests.services.auth.console import OWNER, Console
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices

STEP_UP_VALID_S = 600


@pytest.fixture
def console_role() -> str:
    return "operator-console"


async def operator(console: Console) -> tuple[str, str]:
    """Returns the id of a new operator, and the token of their session."""
    made = await console.create_user()
    await console.call(console.admin.SetOperator, pb.SetOperatorRequest(user_id=made.user.user_id, is_operator=True))
    return made.user.user_id, (await console.use_link(made.code)).session_token


async def token_of(console: Console, session: str) -> bytes:
    return (await console.resolve(session)).access_token


async def events_of(console: Console, **filters: Any) -> list[Any]:
    request = pb.ListAuditEventsRequest(page_size=100, **filters)
    return list((await console.call(console.admin_audit.ListAuditEvents, request)).events)


async def test_the_last_operator_stays_one_and_can_sign_in(console: Console) -> None:
    user_id, session = await operator(console)
    token = await token_of(console, session)
    remove = pb.SetOperatorRequest(user_id=user_id)
    disable = pb.DisableUserRequest(user_id=user_id)
    assert await console.reason(console.operators.SetOperator, remove, token) is Reason.REQUEST_INVALID
    assert await console.reason(console.operators.DisableUser, disable, token) is Reason.REQUEST_INVALID
    other_id, _ = await operator(console)
    # One who cannot sign in is none.
    await console.call(console.admin.DisableUser, pb.DisableUserRequest(user_id=other_id))
    assert await console.reason(console.operators.SetOperator, remove, token) is Reason.REQUEST_INVALID
    await console.call(console.admin.DisableUser, pb.DisableUserRequest(user_id=other_id, enable=True))
    assert await console.reason(console.operators.SetOperator, remove, token) is None


async def test_the_command_line_can_take_the_last_operator_away(console: Console) -> None:
    user_id, _ = await operator(console)
    assert await console.reason(console.admin.SetOperator, pb.SetOperatorRequest(user_id=user_id)) is None


async def test_making_an_operator_needs_a_recent_proof_and_the_opposite_does_not(
    console: Console, clock: FakeClock
) -> None:
    _, session = await operator(console)
    other_id, _ = await operator(console)
    clock.advance(STEP_UP_VALID_S + 1)
    token = await token_of(console, session)
    make = pb.SetOperatorRequest(user_id=other_id, is_operator=True)
    assert await console.reason(console.operators.SetOperator, make, token) is Reason.STEP_UP_REQUIRED
    assert await console.reason(console.operators.SetOperator, pb.SetOperatorRequest(user_id=other_id), token) is None


async def test_no_invitation_makes_an_operator(console: Console) -> None:
    _, session = await operator(console)
    account_id = await console.create_account()
    request = pb.CreateUserRequest(name="Grace", account_id=account_id, role=OWNER)
    made = await console.call(console.operators.CreateUser, request, await token_of(console, session))
    assert not made.user.is_operator
    signed_in = await console.use_link(made.code)
    listing = pb.ListUsersRequest()
    token = await token_of(console, signed_in.session_token)
    assert await console.reason(console.operators.ListUsers, listing, token) is Reason.ROLE_MISSING


async def test_every_change_is_in_the_audit_log_with_the_operators_id(console: Console) -> None:
    user_id, session = await operator(console)
    token = await token_of(console, session)
    accounts = accounts_pb2_grpc.AccountAdminServiceStub(console.console_channel)
    keys = auth_pb2_grpc.KeyAdminServiceStub(console.console_channel)
    created = await console.call(accounts.CreateAccount, auth_pb2.CreateAccountRequest(name="Acme"), token)
    account_id = created.account.account_id
    await console.call(
        accounts.UpdateAccount, auth_pb2.UpdateAccountRequest(account_id=account_id, requests_per_minute=5), token
    )
    await console.call(accounts.SuspendAccount, auth_pb2.SuspendAccountRequest(account_id=account_id), token)
    await console.call(accounts.ResumeAccount, auth_pb2.ResumeAccountRequest(account_id=account_id), token)
    key = (await console.call(keys.CreateKey, auth_pb2.CreateKeyRequest(account_id=account_id), token)).key
    await console.call(keys.RevokeKey, auth_pb2.RevokeKeyRequest(key_id=key.key_id), token)
    made = await console.call(console.operators.CreateUser, pb.CreateUserRequest(name="Grace"), token)
    other = made.user.user_id
    await console.call(console.operators.CreateSignInLink, pb.CreateSignInLinkRequest(user_id=other), token)
    await console.call(console.operators.SetOperator, pb.SetOperatorRequest(user_id=other, is_operator=True), token)
    await console.call(console.operators.DisableUser, pb.DisableUserRequest(user_id=other), token)
    record = pb.RecordOperatorActionRequest(
        action=pb.OPERATOR_ACTION_GRANT_CREDIT, account_id=account_id, object_id=f"{user_id}-0af3"
    )
    await console.call(console.audit.RecordOperatorAction, record, token)
    done = [event.action for event in reversed(await events_of(console, user_id=user_id))]
    assert done[1:] == [
        "account.created",
        "account.updated",
        "account.suspended",
        "account.resumed",
        "key.created",
        "key.revoked",
        "user.created",
        "sign_in_link.created",
        "user.made_operator",
        "user.disabled",
        "credit.grant_requested",
    ]
    [booked] = await events_of(console, account_id=account_id, action="credit")
    assert (booked.user_id, booked.object_id, booked.network) == (user_id, f"{user_id}-0af3", "192.0.2.0/24")


async def test_an_action_for_an_account_that_is_not_there_is_refused(console: Console) -> None:
    _, session = await operator(console)
    request = pb.RecordOperatorActionRequest(action=pb.OPERATOR_ACTION_GRANT_CREDIT, account_id="acct_nowhere")
    token = await token_of(console, session)
    assert await console.reason(console.audit.RecordOperatorAction, request, token) is Reason.NOT_FOUND
    unknown = pb.RecordOperatorActionRequest()
    assert await console.reason(console.audit.RecordOperatorAction, unknown, token) is Reason.REQUEST_INVALID


async def test_accounts_and_users_are_found_by_name_and_id(console: Console) -> None:
    first = await console.create_account()
    await console.call(console.accounts.CreateAccount, auth_pb2.CreateAccountRequest(name="100%_Sure"))

    async def names(query: str) -> list[str]:
        request = auth_pb2.ListAccountsRequest(query=query)
        return [account.name for account in (await console.call(console.accounts.ListAccounts, request)).accounts]

    assert await names("acm") == ["Acme"]
    assert await names(first[:12]) == ["Acme"]
    # What means anything to the database means itself here.
    assert await names("%_s") == ["100%_Sure"]
    assert await names("unknown") == []
    ada = await console.create_user(first, email="ada@example.ca")
    await console.create_user()

    async def users(**filters: Any) -> list[str]:
        found = await console.call(console.admin.ListUsers, pb.ListUsersRequest(**filters))
        return [user.user_id for user in found.users]

    assert await users(query="ADA@example.ca") == await users(account_id=first) == await users(user_id=ada.user.user_id)
    assert await users(account_id=first) == [ada.user.user_id]
    assert len(await users()) == 2


async def test_a_search_that_is_too_long_is_refused(console: Console) -> None:
    request = auth_pb2.ListAccountsRequest(query="x" * 101)
    with pytest.raises(LegatoError) as refusal:
        await console.call(console.accounts.ListAccounts, request)
    assert refusal.value.param == "query"


async def test_a_key_tells_whose_it_is(console: Console) -> None:
    account_id = await console.create_account()
    owner, token = await console.signed_in(account_id)
    create = auth_pb2.CreateKeyRequest(account_id=account_id, name="Report")
    key_id = (await console.call(console.key_admin.CreateKey, create, token)).key.key_id
    _, session = await operator(console)
    keys = auth_pb2_grpc.KeyAdminServiceStub(console.console_channel)
    request = auth_pb2.GetKeyRequest(key_id=key_id)
    found = await console.call(keys.GetKey, request, await token_of(console, session))
    assert (found.account.account_id, found.account.name) == (account_id, "Acme")
    assert (found.key.created_by, found.key.created_by_name) == (owner.user.user_id, "Ada")
    assert await console.reason(keys.GetKey, request, token) is Reason.ROLE_MISSING
    unknown = auth_pb2.GetKeyRequest(key_id="key_0000000000000000")
    assert await console.reason(keys.GetKey, unknown, await token_of(console, session)) is Reason.NOT_FOUND
