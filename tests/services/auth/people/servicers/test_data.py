"""Users who delete themselves, and accounts that are closed: what ends, in which order, and what is left of them."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import accounts_pb2 as pb
from legato_protos.auth.v1 import auth_pb2, users_pb2
from legato_protos.auth.v1 import notices_pb2 as notices
from legato_protos.auth.v1.accounts_pb2_grpc import AccountAdminServiceStub
from legato_protos.auth.v1.notices_pb2_grpc import NoticeServiceStub
from services.auth.core.encryption import TextCipher
from services.auth.core.parts import HOLDS_EVERYWHERE_AFTER_S
from services.auth.core.peppers import Peppers
from services.auth.core.store import add
from services.auth.core.store.tables import metadata
from services.auth.keys.store.epochs import changes_since
from services.auth.keys.store.tables import epoch
from services.auth.service import AuthService
from services.auth.sign_in.records import Challenge, OidcIdentity, Password, Totp
from services.chassis.database.database import Database
from services.chassis.errors import Reason
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import MEMBER, ORIGIN, OWNER, VIEWER, Console
from tests.services.auth.keys.rules.test_keys import create_key
from tests.services.auth.sign_in.authenticator import Authenticator
from tests.services.auth.sign_in.rules.test_sign_in import add_passkey
from tests.support.fakes import FakeClock

NAME, EMAIL = "Zenobia Quartermaine", "zenobia@quartermaine.example.ca"


class Person(NamedTuple):
    user_id: str
    session_token: str
    token: bytes


@pytest.fixture
def data(console: Console) -> AccountAdminServiceStub:
    return AccountAdminServiceStub(console.console_channel)


async def person(console: Console, account_id: str, role: int = OWNER) -> Person:
    request = users_pb2.CreateUserRequest(name=NAME, email=EMAIL, account_id=account_id, role=role)  # type: ignore[arg-type]
    made = await console.call(console.admin.CreateUser, request)
    session_token = (await console.use_link(made.code)).session_token
    token = (await console.resolve(session_token, account_id)).access_token
    return Person(made.user.user_id, session_token, token)


def rows_with(database: Database, wanted: str) -> set[str]:
    """Returns the tables that have a text or its bytes in any column, decrypted where the database is encrypted."""
    found = set()
    with database.transaction(writes=False) as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sa.select(table)):
                if any(wanted in str(value) for value in row):
                    found.add(table.name)
    return found


def files_of(folder: Path) -> list[Path]:
    return list(folder.glob("test.db*"))


async def test_nothing_is_left_of_a_deleted_user_but_the_id(
    console: Console,
    data: AccountAdminServiceStub,
    database: Database,
    auth: AuthService,
    peppers: Peppers,
    tmp_path: Path,
) -> None:
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id)
    one = await person(console, account_id)
    await add_passkey(console, one.token, Authenticator(ORIGIN))
    await console.call(console.user.GenerateRecoveryCodes, users_pb2.GenerateRecoveryCodesRequest(), one.token)
    invite = users_pb2.InviteMemberRequest(account_id=account_id, role=MEMBER)
    await console.call(console.account.InviteMember, invite, one.token)
    key = await create_key(console, account_id, one.token)

    def give(connection: sa.Connection) -> None:
        add(connection, OidcIdentity("oidc_1", one.user_id, "https://issuer.example.ca", NAME, 0))
        add(connection, Password(one.user_id, "a hash", 0))
        add(connection, Totp(one.user_id, b"a secret", 0, 0))
        add(connection, Challenge("challenge_1", one.user_id, NAME.encode(), ORIGIN, 2**60))

    await database.write(give)
    for name in (NAME, f"{NAME} the second"):
        await console.call(console.user.UpdateUser, users_pb2.UpdateUserRequest(name=name), one.token)
    assert {"users", "memberships", "passkeys"} <= rows_with(database, one.user_id)
    deleted = await console.call(data.DeleteUser, pb.DeleteUserRequest(user_id=one.user_id), one.token)
    assert (deleted.memberships, deleted.revoked_keys, deleted.sessions, deleted.sign_in_ways) == (1, 1, 1, 4)
    # The id stays where it says who did what.
    assert rows_with(database, one.user_id) == {"audit_events", "api_keys"}
    assert rows_with(database, NAME) == rows_with(database, EMAIL) == set()
    if database.is_sqlite:
        files = [each.read_bytes() for each in files_of(tmp_path)]
        stored_email = TextCipher({}, peppers.derive("email addresses")).encrypt(EMAIL)
        for wanted in (NAME, EMAIL, stored_email):
            assert not any(wanted.encode() in file for file in files), wanted
    request = users_pb2.ResolveSessionRequest(session_token=one.session_token)
    assert await console.reason(console.sign_in.ResolveSession, request) is Reason.SESSION_ENDED
    assert await console.reason(console.user.ListSessions, users_pb2.ListSessionsRequest(), one.token) is (
        Reason.SESSION_ENDED
    )
    listed = await console.call(console.key_admin.ListKeys, auth_pb2.ListKeysRequest(account_id=account_id), owner)
    assert {each.key_id: each.state for each in listed.keys} == {key.key_id: auth_pb2.KEY_STATE_REVOKED}
    events = users_pb2.ListAuditEventsRequest(user_id=one.user_id, page_size=3)
    found = (await console.call(console.admin_audit.ListAuditEvents, events)).events
    assert [(event.action, event.object_id) for event in found] == [
        ("user.deleted", one.user_id), ("key.revoked", key.key_id), ("member.removed", one.user_id)
    ]  # fmt: skip
    checked = await console.call(console.admin_audit.VerifyAuditEvents, users_pb2.VerifyAuditEventsRequest())
    assert list(checked.broken_event_nos) == []


async def test_the_last_owner_of_an_account_and_the_last_operator_stay(
    console: Console, data: AccountAdminServiceStub
) -> None:
    account_id = await console.create_account()
    one = await person(console, account_id)
    request = pb.DeleteUserRequest(user_id=one.user_id)
    assert await console.reason(data.DeleteUser, request, one.token) is Reason.REQUEST_INVALID
    await console.create_user(account_id, OWNER)
    await console.call(console.admin.SetOperator, users_pb2.SetOperatorRequest(user_id=one.user_id, is_operator=True))
    assert await console.reason(data.DeleteUser, request, one.token) is Reason.REQUEST_INVALID
    # The command line can make another.
    admin = AccountAdminServiceStub(console.admin_channel)
    assert (await console.call(admin.DeleteUser, request)).memberships == 1
    assert await console.reason(admin.DeleteUser, request) is Reason.NOT_FOUND


async def test_two_owners_who_delete_themselves_at_once_leave_one(
    console: Console, data: AccountAdminServiceStub
) -> None:
    account_id = await console.create_account()
    both = [await person(console, account_id, OWNER)]
    signed_in, token = await console.signed_in(account_id)
    both.append(Person(signed_in.user.user_id, signed_in.session_token, token))
    deleting = [console.reason(data.DeleteUser, pb.DeleteUserRequest(user_id=one.user_id), one.token) for one in both]
    assert sorted(await asyncio.gather(*deleting), key=str) == [None, Reason.REQUEST_INVALID]


async def test_what_ends_for_good_needs_a_proof_and_is_ones_own(
    console: Console, data: AccountAdminServiceStub, clock: FakeClock
) -> None:
    account_id, other_id = await console.create_account(), await console.create_account()
    one, other = await person(console, account_id, VIEWER), (await console.signed_in(other_id))[1]
    _, owner = await console.signed_in(account_id)
    delete = pb.DeleteUserRequest(user_id=one.user_id)
    close, end = pb.CloseAccountRequest(account_id=account_id), pb.EndMembershipsRequest(account_id=account_id)
    for token in (owner, other):
        assert await console.reason(data.DeleteUser, delete, token) is Reason.ROLE_MISSING
    for token in (one.token, other):
        assert await console.reason(data.CloseAccount, close, token) is Reason.ROLE_MISSING
        assert await console.reason(data.EndMemberships, end, token) is Reason.ROLE_MISSING
    # An account that is not closed keeps its members.
    assert await console.reason(data.EndMemberships, end, owner) is Reason.REQUEST_INVALID
    clock.advance(601)
    token = (await console.resolve(one.session_token, account_id)).access_token
    for method, request in ((data.DeleteUser, delete), (data.ListMyKeys, pb.ListMyKeysRequest())):
        assert await console.reason(method, request, token) is Reason.STEP_UP_REQUIRED


async def test_own_keys_are_listed_across_accounts(console: Console, data: AccountAdminServiceStub) -> None:
    first_id, second_id = await console.create_account(), await console.create_account()
    one = await person(console, first_id)
    made = await create_key(console, first_id, one.token)
    _, other = await console.signed_in(second_id)
    await create_key(console, second_id, other)
    listed = await console.call(data.ListMyKeys, pb.ListMyKeysRequest(), one.token)
    assert [(each.key_id, each.account_id) for each in listed.keys] == [(made.key_id, first_id)]


async def test_closing_an_account_ends_its_access_at_once_and_can_be_repeated(
    console: Console, data: AccountAdminServiceStub, database: Database, sleep: FakeSleep
) -> None:
    account_id, other_id = await console.create_account(), await console.create_account()
    one = await person(console, account_id)
    _, member = await console.signed_in(account_id, MEMBER)
    key_ids = {(await create_key(console, account_id, token)).key_id for token in (one.token, member)}
    _, other = await console.signed_in(other_id)
    kept = await create_key(console, other_id, other)
    playground = users_pb2.CreatePlaygroundTokenRequest(account_id=account_id)
    await console.call(console.account.CreatePlaygroundToken, playground, member)
    add_webhook = notices.AddWebhookRequest(account_id=account_id, url="https://hooks.example.ca/legato")
    await console.call(NoticeServiceStub(console.console_channel).AddWebhook, add_webhook, one.token)
    invite = users_pb2.InviteMemberRequest(account_id=account_id, role=MEMBER)
    await console.call(console.account.InviteMember, invite, one.token)
    with database.transaction(writes=False) as connection:
        before = connection.execute(sa.select(epoch.c.value)).scalar_one()
    sleep.waits_s.clear()
    request = pb.CloseAccountRequest(account_id=account_id)
    closed = await console.call(data.CloseAccount, request, one.token)
    assert sleep.waits_s == [HOLDS_EVERYWHERE_AFTER_S]
    assert (closed.revoked_keys, closed.removed_webhooks) == (2, 1)
    assert closed.account.HasField("close_time")
    assert closed.account.HasField("suspend_time")
    with database.transaction(writes=False) as connection:
        told = changes_since(connection, before)
    # Running answers of keys and of the playground end.
    assert key_ids <= set(told.refused_key_ids)
    assert any(not each.startswith("key_") for each in told.refused_key_ids)
    assert kept.key_id not in told.refused_key_ids
    tables = {"webhooks", "invitations", "notices", "playground_tokens"}
    with database.transaction(writes=False) as connection:
        counts = {name: connection.scalar(sa.text(f"SELECT count(*) FROM {name}")) for name in tables}
    assert counts == dict.fromkeys(tables, 0)
    # The owner can go on, and nothing is done twice.
    again = await console.call(data.CloseAccount, request, one.token)
    assert (again.revoked_keys, again.account.close_time) == (0, closed.account.close_time)
    resolved = await console.resolve(one.session_token, account_id)
    assert [held.is_closed for held in resolved.memberships] == [True]
    end = pb.EndMembershipsRequest(account_id=account_id)
    assert (await console.call(data.EndMemberships, end, one.token)).ended == 2
    assert (await console.resolve(one.session_token, account_id)).account_id == ""
    admin = AccountAdminServiceStub(console.admin_channel)
    assert (await console.call(admin.EndMemberships, end)).ended == 0
    found = await console.call(console.accounts.GetAccount, auth_pb2.GetAccountRequest(account_id=account_id))
    assert found.account.HasField("close_time")
