"""Playground tokens at the edge: one key counts for all of them, and each ends with its own session."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from edge.backends.auth import Scope
from legato_protos.auth.v1 import users_pb2
from services.auth.core.peppers import Peppers
from services.auth.core.records.users import SignInMethod
from services.auth.core.store import Connection
from services.auth.core.store.users import require_user
from services.auth.keys.rules.playground import IssuedToken
from services.auth.service import AuthService
from services.auth.sign_in.records import Client
from services.auth.sign_in.rules.sessions import SignedIn
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.auth_harness import PEPPER, WAIT_TIMEOUT_S, AuthHarness, bearer
from tests.services.auth.console import OWNER, call_directly


class SignedInUser:
    """A user with a session, who can have tokens."""

    def __init__(self, auth: AuthService, account_id: str, signed_in: SignedIn) -> None:
        self._auth = auth
        self._signed_in = signed_in
        session = signed_in.session
        self._access = Access(
            signed_in.summary.user.user_id, session.session_id, account_id, AccountRole.OWNER, False, 0, 0
        )

    async def token(self) -> IssuedToken:
        return await self._auth.playground.create(self._access)

    async def sign_out(self) -> None:
        await self._auth.sessions.sign_out(self._signed_in.token)


@pytest.fixture
async def harness(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[AuthHarness]:
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log).opened() as harness:
        yield harness


@pytest.fixture
def database(harness: AuthHarness, tmp_path: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{tmp_path}/auth.db", "auth")
    yield opened
    opened.close()


@pytest.fixture
def auth(database: Database, log: Log) -> AuthService:
    """Another replica, which users sign in at."""
    return AuthService(database, Peppers({1: PEPPER}), SystemClock(), log)


async def sign_in(harness: AuthHarness, auth: AuthService, database: Database, sessions: int) -> list[SignedInUser]:
    """Signs one user in, in as many browsers."""
    account_id = (await harness.new_key()).key.account_id
    request = users_pb2.CreateUserRequest(name="Ada", account_id=account_id, role=OWNER)
    user_id = (await call_directly(auth, request)).user.user_id

    def open_one(connection: Connection) -> SignedIn:
        user = require_user(connection, user_id)
        return auth.sessions.open(connection, user, SignInMethod.PASSKEY, Client("192.0.2.1"))

    return [SignedInUser(auth, account_id, await database.write(open_one)) for _ in range(sessions)]


async def test_tokens_of_two_sessions_count_as_one_key_and_end_one_by_one(
    harness: AuthHarness, auth: AuthService, database: Database
) -> None:
    one, other = await sign_in(harness, auth, database, 2)
    ended, kept = await one.token(), await other.token()
    principals = [await harness.principals.authenticate(bearer(made.secret.reveal())) for made in (ended, kept)]
    assert principals[0].key_id == principals[1].key_id == ended.key_id
    assert principals[0].credential_id != principals[1].credential_id
    with (
        harness.principals.track_key(principals[0]) as of_ended,
        harness.principals.track_key(principals[1]) as of_kept,
    ):
        await one.sign_out()
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while not of_ended.is_refused:
                await asyncio.sleep(0.01)
        assert not of_kept.is_refused
    assert (await harness.refusal_of(bearer(ended.secret.reveal()))).reason is Reason.KEY_INVALID
    assert await harness.principals.authenticate(bearer(kept.secret.reveal())) == principals[1]


async def test_a_token_has_the_scopes_of_a_chat_and_no_others(
    harness: AuthHarness, auth: AuthService, database: Database
) -> None:
    [user] = await sign_in(harness, auth, database, 1)
    principal = await harness.principals.authenticate(bearer((await user.token()).secret.reveal()))
    for allowed in (Scope.SCOPE_INFERENCE, Scope.SCOPE_MODELS):
        principal.require(allowed)
    with pytest.raises(LegatoError) as caught:
        principal.require(Scope.SCOPE_USAGE)
    assert caught.value.reason is Reason.SCOPE_MISSING
