"""Playground tokens: what they are good for, and what ends them."""

import asyncio
from typing import Any

import pytest

from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core import key_format
from services.auth.keys.rules import playground
from services.auth.keys.store.epochs import changes_since
from services.auth.service import AuthService
from services.auth.sign_in.store.sessions import end_sessions
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from tests.services.auth.console import MEMBER, OWNER, VIEWER, Console
from tests.support.fakes import FakeClock

MINUTE_S = 60


async def create_token(console: Console, account_id: str, access: bytes) -> pb.CreatePlaygroundTokenResponse:
    request = pb.CreatePlaygroundTokenRequest(account_id=account_id)
    return await console.call(console.account.CreatePlaygroundToken, request, access)  # type: ignore[no-any-return]


async def refusal(auth: AuthService, token: str) -> Reason | None:
    try:
        await auth.verifier.verify(token, accepts_tokens=True)
    except LegatoError as error:
        return error.reason
    return None


def id_of(token: str) -> str:
    parsed = key_format.parse(token)
    assert parsed is not None
    return parsed.key_id


class Revocations:
    """What an edge would hear since it began to listen."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._since = self._changes(0).epoch

    def _changes(self, since: int) -> Any:
        with self._database.transaction(writes=False) as connection:
            return changes_since(connection, since)

    def names(self, token: str) -> bool:
        changes = self._changes(self._since)
        return id_of(token) in changes.key_ids and id_of(token) in changes.refused_key_ids


async def test_a_token_resolves_to_one_key_of_the_member_whatever_the_session(
    console: Console, auth: AuthService
) -> None:
    account_id = await console.create_account()
    signed_in, access = await console.signed_in(account_id, MEMBER)
    first, second = [await create_token(console, account_id, access) for _ in range(2)]
    assert first.playground_token.startswith("pt-legato-")
    assert first.playground_token != second.playground_token
    assert first.key_id == second.key_id
    holders = [
        (await auth.verifier.verify(made.playground_token, accepts_tokens=True)).holder for made in (first, second)
    ]
    assert {holder.key.key_id for holder in holders} == {first.key_id}
    assert [holder.token_id for holder in holders] == [id_of(first.playground_token), id_of(second.playground_token)]
    assert holders[0].key.name == "Playground"
    assert holders[0].key.scopes == ("inference", "models")
    assert holders[0].key.account_id == account_id
    assert holders[0].key.created_by == signed_in.user.user_id


async def test_a_token_is_refused_after_fifteen_minutes(console: Console, auth: AuthService, clock: FakeClock) -> None:
    account_id = await console.create_account()
    _, access = await console.signed_in(account_id)
    made = await create_token(console, account_id, access)
    clock.advance(15 * MINUTE_S - 1)
    assert await refusal(auth, made.playground_token) is None
    clock.advance(1)
    assert await refusal(auth, made.playground_token) is Reason.KEY_INVALID


async def test_a_token_is_not_good_for_longer_than_its_session(
    console: Console, auth: AuthService, clock: FakeClock
) -> None:
    account_id = await console.create_account()
    signed_in, _ = await console.signed_in(account_id)
    for _ in range(2 * 14 - 1):
        clock.advance(12 * 60 * MINUTE_S - 1)
        await console.resolve(signed_in.session_token)
    left_s = signed_in.session.expire_time.seconds - int(clock.now().timestamp())
    clock.advance(left_s - 5 * MINUTE_S)
    access = (await console.resolve(signed_in.session_token)).access_token
    made = await create_token(console, account_id, access)
    assert made.expire_time == signed_in.session.expire_time
    clock.advance(5 * MINUTE_S)
    assert await refusal(auth, made.playground_token) is Reason.KEY_INVALID


async def test_a_token_is_good_for_callers_that_ask_for_it_and_a_guess_for_none(
    console: Console, auth: AuthService
) -> None:
    account_id = await console.create_account()
    _, access = await console.signed_in(account_id)
    made = await create_token(console, account_id, access)
    with pytest.raises(LegatoError) as caught:
        await auth.verifier.verify(made.playground_token)
    assert caught.value.reason is Reason.KEY_INVALID
    real = key_format.parse(made.playground_token)
    assert real is not None
    guessed = key_format.ApiKey(real.public_id, "a" * key_format.SECRET_LENGTH, is_token=True)
    as_key = key_format.ApiKey(real.public_id, real.secret)
    of_key = key_format.ApiKey(made.key_id.removeprefix("key_"), real.secret)
    for wrong in (guessed, as_key, of_key):
        assert await refusal(auth, wrong.reveal()) is Reason.KEY_INVALID


async def test_a_token_is_for_members_of_the_account(console: Console) -> None:
    own, other = await console.create_account(), await console.create_account()
    _, member = await console.signed_in(own, MEMBER)
    _, viewer = await console.signed_in(own, VIEWER)
    for account_id, access, expected in (
        (own, member, None),
        (other, member, Reason.ROLE_MISSING),
        (own, viewer, Reason.ROLE_MISSING),
    ):
        request = pb.CreatePlaygroundTokenRequest(account_id=account_id)
        assert await console.reason(console.account.CreatePlaygroundToken, request, access) is expected


async def test_the_key_of_a_playground_is_in_no_list_and_cannot_be_changed(
    console: Console, auth: AuthService, database: Database
) -> None:
    account_id = await console.create_account()
    _, access = await console.signed_in(account_id)
    made = await create_token(console, account_id, access)
    request = auth_pb2.ListKeysRequest(account_id=account_id)
    assert (await console.call(console.key_admin.ListKeys, request, access)).keys == []
    request.with_playground = True
    [listed] = (await console.call(console.key_admin.ListKeys, request, access)).keys
    assert (listed.key_id, listed.name, listed.is_playground) == (made.key_id, "Playground", True)
    assert (listed.created_by_name, listed.may_change) == ("Ada", False)
    own: dict[str, Any] = {"account_id": account_id, "key_id": made.key_id}
    for method, change in (
        (console.key_admin.RevokeKey, auth_pb2.RevokeKeyRequest(**own)),
        (console.key_admin.RotateKey, auth_pb2.RotateKeyRequest(**own)),
        (console.key_admin.RenameKey, auth_pb2.RenameKeyRequest(name="x", **own)),
    ):
        assert await console.reason(method, change, access) is Reason.ROLE_MISSING
    assert await console.reason(console.keys.RevokeKey, auth_pb2.RevokeKeyRequest(key_id=made.key_id)) is (
        Reason.NOT_FOUND
    )
    counted = await console.call(console.keys.CountKeysByPepper, auth_pb2.CountKeysByPepperRequest())
    assert counted.counts == []
    assert await refusal(auth, made.playground_token) is None


async def sign_out(console: Console, signed_in: pb.SignedIn) -> None:
    await console.call(console.sign_in.SignOut, pb.SignOutRequest(session_token=signed_in.session_token))


async def test_signing_out_ends_the_tokens_of_that_session_as_a_revocation_would(
    console: Console, auth: AuthService, database: Database
) -> None:
    account_id = await console.create_account()
    one, access_of_one = await console.signed_in(account_id)
    _, access_of_other = await console.signed_in(account_id)
    ended, kept = [
        (await create_token(console, account_id, access)).playground_token
        for access in (access_of_one, access_of_other)
    ]
    revocations = Revocations(database)
    await sign_out(console, one)
    assert [await refusal(auth, token) for token in (ended, kept)] == [Reason.KEY_INVALID, None]
    assert [revocations.names(token) for token in (ended, kept)] == [True, False]
    assert await auth.verifier.find_refused([id_of(ended), id_of(kept)]) == [id_of(ended)]


async def test_what_takes_the_users_access_ends_the_token(
    console: Console, auth: AuthService, database: Database
) -> None:
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id, OWNER)

    async def take_by(what: str, signed_in: pb.SignedIn, access: bytes) -> None:
        user_id = signed_in.user.user_id
        own = {"account_id": account_id, "user_id": user_id}
        if what == "removed":
            await console.call(console.account.RemoveMember, pb.RemoveMemberRequest(**own), owner)
        elif what == "viewer":
            request = pb.ChangeMemberRoleRequest(role=VIEWER, **own)
            await console.call(console.account.ChangeMemberRole, request, owner)
        elif what == "disabled":
            await console.call(console.admin.DisableUser, pb.DisableUserRequest(user_id=user_id))
        elif what == "sessions":
            ids = [signed_in.session.session_id]
            await console.call(console.user.EndSessions, pb.EndSessionsRequest(session_ids=ids), access)
        else:
            link = await console.call(console.admin.CreateSignInLink, pb.CreateSignInLinkRequest(user_id=user_id))
            await console.use_link(link.code)

    for what in ("removed", "viewer", "disabled", "sessions", "link"):
        signed_in, access = await console.signed_in(account_id, MEMBER)
        token = (await create_token(console, account_id, access)).playground_token
        revocations = Revocations(database)
        await take_by(what, signed_in, access)
        assert await refusal(auth, token) is Reason.KEY_INVALID, what
        assert revocations.names(token), what


async def test_a_suspended_account_ends_the_token_until_it_is_resumed(
    console: Console, auth: AuthService, database: Database
) -> None:
    account_id = await console.create_account()
    _, access = await console.signed_in(account_id)
    token = (await create_token(console, account_id, access)).playground_token
    revocations = Revocations(database)
    await console.call(console.accounts.SuspendAccount, auth_pb2.SuspendAccountRequest(account_id=account_id))
    assert await refusal(auth, token) is Reason.ACCOUNT_SUSPENDED
    assert revocations.names(token)
    await console.call(console.accounts.ResumeAccount, auth_pb2.ResumeAccountRequest(account_id=account_id))
    assert await refusal(auth, token) is None


async def test_no_token_outlives_an_end_that_came_while_it_was_created(console: Console, auth: AuthService) -> None:
    """Whichever of the two is first, the token does not work afterwards."""
    account_id = await console.create_account()
    _, owner = await console.signed_in(account_id, OWNER)
    for _ in range(3):
        for end in ("session", "member", "user"):
            signed_in, access = await console.signed_in(account_id, MEMBER)
            user_id = signed_in.user.user_id
            remove = pb.RemoveMemberRequest(account_id=account_id, user_id=user_id)
            creating = asyncio.create_task(create_token(console, account_id, access))
            if end == "session":
                await sign_out(console, signed_in)
            elif end == "member":
                await console.call(console.account.RemoveMember, remove, owner)
            else:
                await console.call(console.admin.DisableUser, pb.DisableUserRequest(user_id=user_id))
            await asyncio.wait([creating])
            failure = creating.exception()
            if failure is None:
                assert await refusal(auth, creating.result().playground_token) is Reason.KEY_INVALID
            else:
                assert isinstance(failure, LegatoError)
                assert failure.reason in (Reason.SESSION_ENDED, Reason.ROLE_MISSING)


async def test_a_token_that_is_created_while_its_session_ends_waits_and_is_refused(
    console: Console, auth: AuthService, database: Database
) -> None:
    """The end has begun, but is not committed yet: what it will do must be waited for."""
    account_id = await console.create_account()
    signed_in, access = await console.signed_in(account_id)
    with database.transaction(writes=True) as connection:
        end_sessions(connection, signed_in.user.user_id)
        creating = asyncio.create_task(create_token(console, account_id, access))
        # Its first check sees the session; the second waits for us.
        done, _ = await asyncio.wait([creating], timeout=0.3)
        assert not done
    with pytest.raises(LegatoError) as caught:
        await creating
    assert caught.value.reason is Reason.SESSION_ENDED


async def test_a_session_keeps_its_newest_tokens(
    console: Console, auth: AuthService, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playground, "TOKENS_PER_SESSION_MOST", 2)
    account_id = await console.create_account()
    _, access = await console.signed_in(account_id)
    revocations, made = Revocations(database), []
    for _ in range(3):
        made.append((await create_token(console, account_id, access)).playground_token)
        clock.advance(1)
    assert [await refusal(auth, token) for token in made] == [Reason.KEY_INVALID, None, None]
    assert [revocations.names(token) for token in made] == [True, False, False]


async def test_the_audit_log_names_the_first_token_of_a_session_and_no_secret(console: Console) -> None:
    account_id = await console.create_account()
    _, access = await console.signed_in(account_id)
    made = [await create_token(console, account_id, access) for _ in range(3)]
    request = pb.ListAuditEventsRequest(account_id=account_id)
    events = (await console.call(console.audit.ListAuditEvents, request, access)).events
    opened = [event for event in events if event.action == "playground.opened"]
    assert [event.object_id for event in opened] == [made[0].key_id]
