"""Each act that a restored database must not undo: a backup, the act, the restore, and the replay of the audit log."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import accounts_pb2, auth_pb2, callers_pb2
from legato_protos.auth.v1 import credentials_pb2 as cred
from legato_protos.auth.v1 import notices_pb2 as notices
from legato_protos.auth.v1 import users_pb2 as pb
from legato_protos.auth.v1.accounts_pb2_grpc import AccountAdminServiceStub
from legato_protos.auth.v1.notices_pb2_grpc import NoticeServiceStub
from legato_protos.type.v1.class_allowance_pb2 import ClassAllowance
from services.auth.audit.rules.copy import AuditCopy
from services.auth.core.store import add
from services.auth.core.store.tables import accounts, memberships, users
from services.auth.service import AuthService
from services.auth.sign_in.records import OidcIdentity
from services.auth.sign_in.store.credentials import list_identities
from services.chassis.changes import to_changes
from services.chassis.database.database import Database
from services.chassis.errors import Reason
from services.chassis.object_store import Folder
from services.chassis.telemetry.log import Log
from tests.services.auth.audit.backup import Backup
from tests.services.auth.console import CLIENT, MEMBER, ORIGIN, OWNER, VIEWER, Console, by_link
from tests.services.auth.sign_in.authenticator import Authenticator
from tests.services.auth.sign_in.rules.test_password_sign_in import PASSWORD, attempt, set_totp, set_up
from tests.services.auth.sign_in.rules.test_password_sign_in import auth as auth_with_passwords
from tests.services.auth.sign_in.rules.test_sign_in import add_passkey, finish, start
from tests.support.fakes import FakeClock

auth = auth_with_passwords


class Restored:
    """The block is what happens between a backup and the loss of the database."""

    def __init__(self, database: Database, auth: AuthService, folder: Path, log: Log) -> None:
        self._database = database
        self._copies = [AuditCopy(database, auth.parts.audit, Folder(folder), log) for _ in range(2)]

    async def __aenter__(self) -> None:
        self._copy = self._copies[0]
        await self._copy.open()
        await self._copy.copy_segment()
        self._backup = Backup(self._database)

    async def __aexit__(self, *failure: object) -> None:
        await self._copy.copy_segment()
        self._backup.restore()
        await self._copies[1].open()


@pytest.fixture
def restored(database: Database, auth: AuthService, tmp_path: Path, log: Log) -> Restored:
    return Restored(database, auth, tmp_path / "copy", log)


async def test_suspended_accounts_stay_so_and_resumed_ones_are_served(console: Console, restored: Restored) -> None:
    suspended, resumed, both = [await console.create_account() for _ in range(3)]
    await console.call(console.accounts.SuspendAccount, auth_pb2.SuspendAccountRequest(account_id=resumed))
    async with restored:
        for account_id in (suspended, both):
            await console.call(console.accounts.SuspendAccount, auth_pb2.SuspendAccountRequest(account_id=account_id))
        for account_id in (resumed, both):
            await console.call(console.accounts.ResumeAccount, auth_pb2.ResumeAccountRequest(account_id=account_id))
    for account_id, is_suspended in ((suspended, True), (resumed, False), (both, False)):
        found = await console.call(console.accounts.GetAccount, auth_pb2.GetAccountRequest(account_id=account_id))
        assert found.account.HasField("suspend_time") is is_suspended


async def test_limits_classes_and_switches_are_what_they_were_changed_to(console: Console, restored: Restored) -> None:
    account_id = await console.create_account()
    made = await console.call(console.keys.CreateKey, auth_pb2.CreateKeyRequest(account_id=account_id, name="laptop"))
    mezzo = ClassAllowance(class_ids=["mezzo"])
    async with restored:
        account = auth_pb2.UpdateAccountRequest(account_id=account_id, search=False, allowed_classes=mezzo)
        await console.call(console.accounts.UpdateAccount, account)
        for limit in (600, 60):
            key = auth_pb2.UpdateKeyRequest(key_id=made.key.key_id, requests_per_minute=limit, allowed_classes=mezzo)
            await console.call(console.keys.UpdateKey, key)
    found = await console.call(console.keys.GetKey, auth_pb2.GetKeyRequest(key_id=made.key.key_id))
    assert (found.key.requests_per_minute, list(found.key.allowed_classes.class_ids)) == (60, ["mezzo"])
    kept = (await console.call(console.accounts.GetAccount, auth_pb2.GetAccountRequest(account_id=account_id))).account
    assert (kept.search, kept.memory, list(kept.allowed_classes.class_ids)) == (False, True, ["mezzo"])
    # The log says so as before, and its chain is whole.
    events = await console.call(console.admin_audit.ListAuditEvents, pb.ListAuditEventsRequest(action="key.updated"))
    assert [to_changes(event.changes)[0].after for event in events.events] == [60, 600]
    verified = await console.call(console.admin_audit.VerifyAuditEvents, pb.VerifyAuditEventsRequest())
    assert (verified.events, list(verified.broken_event_nos)) == (5, [])


async def test_revoked_programs_stay_revoked(console: Console, restored: Restored) -> None:
    account_id, other_id = await console.create_account(), await console.create_account()
    for caller, granted_id in (("batch", account_id), ("batch", other_id), ("search", account_id)):
        grant = callers_pb2.GrantCallerRequest(caller=caller, account_id=granted_id)
        await console.call(console.callers.GrantCaller, grant)
    async with restored:
        revoke = callers_pb2.RevokeCallerRequest(caller="batch", account_id=account_id)
        await console.call(console.callers.RevokeCaller, revoke)

    async def is_refused(caller: str, account_id: str) -> bool:
        request = auth_pb2.VerifyCallerRequest(caller=caller, account_id=account_id)
        return await console.reason(console.auth.VerifyCaller, request) is not None

    assert [await is_refused("batch", account_id), await is_refused("batch", other_id)] == [True, False]
    assert not await is_refused("search", account_id)


async def test_programs_have_the_limits_that_their_grants_were_given_last(console: Console, restored: Restored) -> None:
    """A grant again with other limits is an event of its own: lowered ones are not what they were before the backup."""
    account_id, other_id, own_id = [await console.create_account() for _ in range(3)]

    async def grant(caller: str, granted_id: str, requests_per_minute: int) -> None:
        request = callers_pb2.GrantCallerRequest(caller=caller, account_id=granted_id, all_accounts=not granted_id)
        if requests_per_minute:
            request.requests_per_minute = requests_per_minute
        await console.call(console.callers.GrantCaller, request)

    for caller, granted_id in (("batch", account_id), ("batch", ""), ("search", account_id), ("ended", account_id)):
        await grant(caller, granted_id, 600)
    # So that it has a key before the backup, which the grant of all accounts is for.
    first_call = auth_pb2.VerifyCallerRequest(caller="batch", account_id=other_id)
    await console.call(console.auth.VerifyCaller, first_call)
    async with restored:
        await grant("batch", account_id, 60)
        await grant("batch", "", 30)
        # Lower than those of all accounts, which it was under before.
        await grant("batch", own_id, 20)
        await grant("search", account_id, 0)
        await console.call(
            console.callers.RevokeCaller, callers_pb2.RevokeCallerRequest(caller="ended", account_id=account_id)
        )
        await grant("ended", account_id, 60)
        # None was there at the backup: a program gets no right by a replay.
        await grant("later", account_id, 60)

    async def limit_of(caller: str, account_id: str) -> int | None:
        request = auth_pb2.VerifyCallerRequest(caller=caller, account_id=account_id)
        if await console.reason(console.auth.VerifyCaller, request) is not None:
            return None
        found = await console.call(console.auth.VerifyCaller, request)
        return int(found.principal.requests_per_minute)

    assert await limit_of("batch", account_id) == 60
    assert await limit_of("batch", other_id) == 30
    assert await limit_of("batch", own_id) == 20
    assert await limit_of("search", account_id) == 0
    assert await limit_of("ended", account_id) is None
    assert await limit_of("later", account_id) is None
    page = await console.call(console.callers.ListCallers, callers_pb2.ListCallersRequest())
    good = {
        (each.caller, each.account_id): each.requests_per_minute
        for each in page.grants
        if not each.HasField("revoke_time")
    }
    assert good == {("batch", account_id): 60, ("batch", ""): 30, ("batch", own_id): 20, ("search", account_id): 0}


async def test_users_who_were_disabled_removed_or_lowered_stay_so(
    console: Console, restored: Restored, database: Database
) -> None:
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id)
    disabled, removed, lowered, operator = [await console.create_user(account_id, MEMBER) for _ in range(4)]
    set_operator = pb.SetOperatorRequest(user_id=operator.user.user_id, is_operator=True)
    await console.call(console.admin.SetOperator, set_operator)
    async with restored:
        await console.call(console.admin.DisableUser, pb.DisableUserRequest(user_id=disabled.user.user_id))
        remove = pb.RemoveMemberRequest(account_id=account_id, user_id=removed.user.user_id)
        await console.call(console.account.RemoveMember, remove, owner)
        lower = pb.ChangeMemberRoleRequest(account_id=account_id, user_id=lowered.user.user_id, role=VIEWER)
        await console.call(console.account.ChangeMemberRole, lower, owner)
        set_operator.is_operator = False
        await console.call(console.admin.SetOperator, set_operator)
    assert await console.reason(console.sign_in.SignIn, by_link(disabled.code)) is Reason.SIGN_IN_FAILED
    with database.transaction(writes=False) as connection:
        rows = connection.execute(sa.select(memberships.c.user_id, memberships.c.role))
        roles = {row.user_id: row.role for row in rows}
        operators = connection.execute(sa.select(users.c.user_id).where(users.c.is_operator)).all()
    assert removed.user.user_id not in roles
    assert (roles[lowered.user.user_id], roles[disabled.user.user_id]) == (1, 2)
    assert operators == []


async def test_links_invitations_and_recovery_codes_that_were_used_stay_used(
    console: Console, restored: Restored
) -> None:
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id)
    used, replaced, kept = [await console.create_user(account_id) for _ in range(3)]
    codes = (await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), owner)).codes
    invite = pb.InviteMemberRequest(account_id=account_id, role=MEMBER)
    accepted, cancelled, waiting = [await console.call(console.account.InviteMember, invite, owner) for _ in range(3)]
    invitation_id = cancelled.invitation.invitation_id

    def accept(invited: pb.InviteMemberResponse) -> pb.AcceptInvitationRequest:
        return pb.AcceptInvitationRequest(code=invited.code, name="Bea", client=CLIENT)

    def recover(code: str) -> pb.SignInRequest:
        return pb.SignInRequest(proof=pb.Proof(recovery_code=code), client=CLIENT)

    async with restored:
        await console.use_link(used.code)
        again = pb.CreateSignInLinkRequest(user_id=replaced.user.user_id)
        await console.call(console.admin.CreateSignInLink, again)
        await console.call(console.sign_in.AcceptInvitation, accept(accepted))
        cancel = pb.CancelInvitationRequest(account_id=account_id, invitation_id=invitation_id)
        await console.call(console.account.CancelInvitation, cancel, owner)
        await console.call(console.sign_in.SignIn, recover(codes[0]))
    for made in (used, replaced):
        assert await console.reason(console.sign_in.SignIn, by_link(made.code)) is Reason.SIGN_IN_FAILED
    for invited in (accepted, cancelled):
        assert await console.reason(console.sign_in.AcceptInvitation, accept(invited)) is Reason.SIGN_IN_FAILED
    assert await console.reason(console.sign_in.SignIn, recover(codes[0])) is Reason.SIGN_IN_FAILED
    # What was not used goes on.
    await console.use_link(kept.code)
    await console.call(console.sign_in.AcceptInvitation, accept(waiting))
    recovered = await console.call(console.sign_in.SignIn, recover(codes[1]))
    assert recovered.signed_in.user.recovery_codes == 8


async def test_replaced_recovery_codes_and_ended_sessions_stay_ended(console: Console, restored: Restored) -> None:
    signed_in, token = await console.signed_in(await console.create_account())
    codes = (await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)).codes
    async with restored:
        await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)
        await console.call(console.sign_in.SignOut, pb.SignOutRequest(session_token=signed_in.session_token))
    resolve = pb.ResolveSessionRequest(session_token=signed_in.session_token)
    assert await console.reason(console.sign_in.ResolveSession, resolve) is Reason.SESSION_ENDED
    recover = pb.SignInRequest(proof=pb.Proof(recovery_code=codes[0]), client=CLIENT)
    assert await console.reason(console.sign_in.SignIn, recover) is Reason.SIGN_IN_FAILED


async def test_passkeys_are_not_used_again_from_where_they_were(console: Console, restored: Restored) -> None:
    _, token = await console.signed_in(await console.create_account())
    removed, copied = Authenticator(ORIGIN), Authenticator(ORIGIN)
    removed_id = (await add_passkey(console, token, removed)).passkey_id
    await add_passkey(console, token, copied)
    started = await start(console)
    answer = copied.sign_in(started.options_json)
    async with restored:
        await console.call(console.sign_in.SignIn, finish(started, answer))
        await console.call(console.user.RemovePasskey, pb.RemovePasskeyRequest(passkey_id=removed_id), token)
    # The challenge was answered before.
    assert await console.reason(console.sign_in.SignIn, finish(started, answer)) is Reason.SIGN_IN_FAILED
    another = await start(console)
    request = finish(another, removed.sign_in(another.options_json))
    assert await console.reason(console.sign_in.SignIn, request) is Reason.SIGN_IN_FAILED
    # A copy of the authenticator counts from where the other one was.
    copied.count -= 1
    another = await start(console)
    request = finish(another, copied.sign_in(another.options_json))
    assert await console.reason(console.sign_in.SignIn, request) is Reason.SIGN_IN_FAILED
    another = await start(console)
    await console.call(console.sign_in.SignIn, finish(another, copied.sign_in(another.options_json)))


async def test_a_code_of_an_authenticator_app_is_not_used_again(
    console: Console, restored: Restored, clock: FakeClock
) -> None:
    app, _, _ = await set_up(console, clock)
    async with restored:
        await console.call(console.sign_in.SignIn, attempt(app.code()))
    assert await console.reason(console.sign_in.SignIn, attempt(app.code())) is Reason.SIGN_IN_FAILED
    clock.advance(60)
    await console.call(console.sign_in.SignIn, attempt(app.code()))


@pytest.mark.parametrize("what", ["password", "app"])
async def test_a_password_and_an_app_that_were_replaced_do_not_come_back(
    console: Console, restored: Restored, clock: FakeClock, what: str
) -> None:
    app, token, _ = await set_up(console, clock)
    async with restored:
        if what == "password":
            set_password = cred.SetPasswordRequest(password=f"another {PASSWORD}")
            await console.call(console.credentials.SetPassword, set_password, token)
        else:
            await set_totp(console, clock, token)
    clock.advance(60)
    assert await console.reason(console.sign_in.SignIn, attempt(app.code())) is Reason.SIGN_IN_FAILED


async def test_a_removed_webhook_gets_no_notices(console: Console, restored: Restored) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    stub = NoticeServiceStub(console.console_channel)
    add = notices.AddWebhookRequest(account_id=account_id, url="https://example.ca/hook")
    removed, kept = [(await console.call(stub.AddWebhook, add, token)).webhook.webhook_id for _ in range(2)]
    async with restored:
        remove = notices.RemoveWebhookRequest(account_id=account_id, webhook_id=removed)
        await console.call(stub.RemoveWebhook, remove, token)
    get = notices.GetNoticeSettingsRequest(account_id=account_id)
    owner = await console.call(
        console.admin.CreateUser, pb.CreateUserRequest(name="Bea", account_id=account_id, role=OWNER)
    )
    signed_in = await console.use_link(owner.code)
    token = (await console.resolve(signed_in.session_token, account_id)).access_token
    found = await console.call(stub.GetNoticeSettings, get, token)
    assert [webhook.webhook_id for webhook in found.settings.webhooks] == [kept]


async def test_an_identity_that_was_removed_signs_no_user_in(
    console: Console, restored: Restored, auth: AuthService, database: Database
) -> None:
    user_id = (await console.create_user()).user.user_id
    identity = OidcIdentity("oidc_1", user_id, "https://issuer.example.ca", "ada", 0)
    await database.write(lambda connection: add(connection, identity))
    async with restored:
        await database.write(auth.parts.audit.append, "identity.removed", user_id=user_id, object_id="oidc_1")
    assert await database.read(list_identities, user_id) == []


async def test_a_deleted_user_and_a_closed_account_do_not_come_back(
    console: Console, restored: Restored, database: Database
) -> None:
    account_id, closed_id = await console.create_account(), await console.create_account()
    await console.signed_in(account_id)
    deleted = await console.create_user(account_id, MEMBER, "gone@example.ca")
    token = (await console.resolve((await console.use_link(deleted.code)).session_token, account_id)).access_token
    made = await console.call(
        console.key_admin.CreateKey, auth_pb2.CreateKeyRequest(account_id=account_id, name="theirs"), token
    )
    _, closing = await console.signed_in(closed_id)
    key = await console.call(
        console.key_admin.CreateKey, auth_pb2.CreateKeyRequest(account_id=closed_id, name="last"), closing
    )
    data = AccountAdminServiceStub(console.console_channel)
    async with restored:
        await console.call(data.DeleteUser, accounts_pb2.DeleteUserRequest(user_id=deleted.user.user_id), token)
        await console.call(data.CloseAccount, accounts_pb2.CloseAccountRequest(account_id=closed_id), closing)
        await console.call(data.EndMemberships, accounts_pb2.EndMembershipsRequest(account_id=closed_id), closing)
        # What was created after the backup has nothing that could come back.
        late = await console.create_user(await console.create_account())
        late_id = late.user.user_id
    with database.transaction(writes=False) as connection:
        assert not {deleted.user.user_id, late_id} & set(connection.scalars(sa.select(users.c.user_id)))
        assert set(connection.scalars(sa.select(memberships.c.account_id))) == {account_id}
        assert connection.scalar(sa.select(accounts.c.closed_at_us).filter_by(account_id=closed_id)) is not None
    for secret in (made.api_key, key.api_key):
        assert await console.reason(console.auth.Verify, auth_pb2.VerifyRequest(api_key=secret)) is Reason.KEY_INVALID
    resume = auth_pb2.ResumeAccountRequest(account_id=closed_id)
    assert await console.reason(console.accounts.ResumeAccount, resume) is Reason.REQUEST_INVALID
    checked = await console.call(console.admin_audit.VerifyAuditEvents, pb.VerifyAuditEventsRequest())
    assert list(checked.broken_event_nos) == []
