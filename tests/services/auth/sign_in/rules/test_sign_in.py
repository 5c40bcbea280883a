"""Signs users in and out, as a console does."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.peppers import Peppers
from services.auth.service import AuthService
from services.auth.sign_in.records import Client
from services.auth.sign_in.rules.sessions import SignedIn
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import CLIENT, EMAIL, ORIGIN, OWNER, Console, by_link, call_directly
from tests.services.auth.sign_in.authenticator import Authenticator
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices

WRONG = "0000-0000-0000-0000-0000"
HOUR_S = 3600


async def add_passkey(console: Console, token: bytes, passkey: Authenticator) -> pb.Passkey:
    request = pb.StartPasskeyRegistrationRequest(origin=ORIGIN)
    started = await console.call(console.user.StartPasskeyRegistration, request, token)
    answer = passkey.register(started.options_json)
    finish = pb.FinishPasskeyRegistrationRequest(challenge_id=started.challenge_id, credential_json=answer)
    return (await console.call(console.user.FinishPasskeyRegistration, finish, token)).passkey  # type: ignore[no-any-return]


async def start(console: Console) -> pb.StartPasskeySignInResponse:
    request = pb.StartPasskeySignInRequest(origin=ORIGIN, client=CLIENT)
    return await console.call(console.sign_in.StartPasskeySignIn, request)  # type: ignore[no-any-return]


def finish(started: pb.StartPasskeySignInResponse, answer: str) -> pb.SignInRequest:
    passkey = pb.PasskeyProof(challenge_id=started.challenge_id, credential_json=answer)
    return pb.SignInRequest(proof=pb.Proof(passkey=passkey), client=CLIENT)


async def test_a_link_signs_its_user_in_once(console: Console) -> None:
    account_id = await console.create_account()
    made = await console.create_user(account_id)
    signed_in = await console.use_link(made.code.lower().replace("-", " "))

    resolved = await console.resolve(signed_in.session_token)
    assert (resolved.user.user_id, resolved.account_id) == (made.user.user_id, account_id)
    assert [held.role for held in resolved.memberships] == [OWNER]
    request = by_link(made.code)
    assert await console.reason(console.sign_in.SignIn, request) is Reason.SIGN_IN_FAILED


async def with_proof(auth: AuthService, client: Client, **proof: Any) -> SignedIn:
    return await auth.sign_in.by_proof(await auth.sign_in.proof(**proof), client)


def _client(number: int) -> Client:
    return Client(f"198.51.100.{number}")


async def test_a_link_expires_and_is_replaced_by_a_newer_one(console: Console, clock: FakeClock) -> None:
    made = await console.create_user()
    request = pb.CreateSignInLinkRequest(user_id=made.user.user_id)
    newer = await console.call(console.admin.CreateSignInLink, request)
    for code in (made.code, newer.code):
        clock.advance(600)
        failed = await console.reason(console.sign_in.SignIn, by_link(code))
        assert failed is Reason.SIGN_IN_FAILED


async def test_wrong_codes_are_limited_by_address_and_other_addresses_are_not(
    console: Console, clock: FakeClock
) -> None:
    made = await console.create_user()
    request = by_link(WRONG)
    reasons = [await console.reason(console.sign_in.SignIn, request) for _ in range(12)]
    assert reasons == [Reason.SIGN_IN_FAILED] * 10 + [Reason.TOO_MANY_SIGN_INS] * 2

    right = by_link(made.code)
    assert await console.reason(console.sign_in.SignIn, right) is Reason.TOO_MANY_SIGN_INS
    await console.use_link(made.code, pb.Client(address="203.0.113.9"))
    clock.advance(60)
    assert await console.reason(console.sign_in.SignIn, request) is Reason.SIGN_IN_FAILED


async def test_successes_are_not_counted(console: Console) -> None:
    for _ in range(15):
        await console.use_link((await console.create_user()).code)


async def test_a_recovery_code_works_once_and_ends_other_sessions(console: Console) -> None:
    signed_in, token = await console.signed_in(await console.create_account())
    made = await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)
    assert len(set(made.codes)) == 10
    request = pb.SignInRequest(proof=pb.Proof(recovery_code=made.codes[0]), client=CLIENT)
    recovered = (await console.call(console.sign_in.SignIn, request)).signed_in
    assert recovered.user.recovery_codes == 9
    old = pb.ResolveSessionRequest(session_token=signed_in.session_token)
    assert await console.reason(console.sign_in.ResolveSession, old) is Reason.SESSION_ENDED
    assert await console.reason(console.sign_in.SignIn, request) is Reason.SIGN_IN_FAILED


async def test_without_a_signing_key_users_cannot_sign_in(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    auth = AuthService(database, peppers, clock, log, sleep)
    code = (await call_directly(auth, pb.CreateUserRequest(name="Ada"))).code
    with pytest.raises(LegatoError) as caught:
        await with_proof(auth, _client(1), link_code=code)
    assert caught.value.reason is Reason.ENDPOINT_NOT_OFFERED


async def test_neither_log_nor_audit_event_nor_row_has_a_token_a_code_or_an_address(
    console: Console, database: Database, log_text: Callable[[], str]
) -> None:
    account_id = await console.create_account()
    made = await console.create_user(account_id, email=EMAIL)
    signed_in = await console.use_link(made.code)
    token = (await console.resolve(signed_in.session_token)).access_token
    request = auth_pb2.CreateKeyRequest(account_id=account_id, name="laptop")
    key = await console.call(console.key_admin.CreateKey, request, token)
    codes = (await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)).codes
    invite = pb.InviteMemberRequest(account_id=account_id, email="grace@example.ca", role=OWNER)
    invited = await console.call(console.account.InviteMember, invite, token)

    with database.transaction(writes=False) as connection:
        audit = str(connection.execute(sa.text("SELECT * FROM audit_events")).all())
        tables = sa.inspect(connection).get_table_names()
        rows = "".join(str(connection.execute(sa.text(f'SELECT * FROM "{table}"')).all()) for table in tables)
    for secret in (made.code, signed_in.session_token, key.api_key, codes[0], invited.code):
        assert secret not in log_text() + rows
        assert secret.replace("-", "") not in log_text() + rows
    assert "@example.ca" not in log_text() + audit
    assert CLIENT.address not in log_text() + rows
    assert "192.0.2.0/24" in audit


async def test_attempts_beyond_the_limit_write_nothing_so_that_revocations_do_not_wait(
    auth: AuthService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(10):
        with pytest.raises(LegatoError):
            await with_proof(auth, _client(1), link_code=WRONG)
    monkeypatch.setattr(database, "write", None)
    for _ in range(100):
        with pytest.raises(LegatoError) as caught:
            await with_proof(auth, _client(1), link_code=WRONG)
        assert caught.value.reason is Reason.TOO_MANY_SIGN_INS
