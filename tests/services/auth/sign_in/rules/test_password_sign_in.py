"""Signs users in by password and authenticator app, as a console does."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest

from legato_protos.auth.v1 import credentials_pb2 as cred
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.peppers import Peppers
from services.auth.keys.rules.watch import Ping
from services.auth.service import AuthService, ConsoleOptions
from services.auth.sign_in.rules import totp
from services.auth.sign_in.rules.password_sign_in import TOTP_CHALLENGE_VALID_US
from services.auth.sign_in.rules.passwords import WAITING_MOST, PasswordHashes
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import CLIENT, EMAIL, OPTIONS, ORIGIN, Console
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices

PASSWORD = "correct horse battery staple"
ENCRYPTION_KEY = "1:" + "5c" * 32


@pytest.fixture
def auth(database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep) -> AuthService:
    options = ConsoleOptions(signing_key=OPTIONS.signing_key, origins=ORIGIN, encryption_key=ENCRYPTION_KEY)
    return AuthService(database, peppers, clock, log, sleep, options)


class App:
    """An authenticator app."""

    def __init__(self, clock: FakeClock, secret: str) -> None:
        import base64

        self._clock = clock
        self._secret = base64.b32decode(secret)

    def code(self, steps: int = 0) -> str:
        return totp.code_at(self._secret, int(self._clock.now().timestamp()) // 30 + steps)


async def set_up(console: Console, clock: FakeClock) -> tuple[App, bytes, pb.SignedIn]:
    account_id = await console.create_account()
    signed_in = await console.use_link((await console.create_user(account_id, email=EMAIL)).code)
    token = (await console.resolve(signed_in.session_token)).access_token
    await console.call(console.credentials.SetPassword, cred.SetPasswordRequest(password=PASSWORD), token)
    app = await set_totp(console, clock, token)
    clock.advance(30)
    return app, token, signed_in


async def set_totp(console: Console, clock: FakeClock, token: bytes) -> App:
    started = await console.call(console.credentials.StartTotp, cred.StartTotpRequest(), token)
    assert started.uri.startswith("otpauth://totp/Legato%3A")
    assert f"secret={started.secret}" in started.uri
    app = App(clock, started.secret)
    request = cred.SetTotpRequest(challenge_id=started.challenge_id, code=app.code())
    await console.call(console.credentials.SetTotp, request, token)
    return app


def attempt(code: str, password: str = PASSWORD, email: str = EMAIL, address: str = "") -> pb.SignInRequest:
    proof = pb.Proof(password=pb.PasswordProof(email=email, password=password, totp_code=code))
    return pb.SignInRequest(proof=proof, client=pb.Client(address=address or CLIENT.address))


async def test_a_password_with_a_code_signs_in_and_other_sessions_go_on(console: Console, clock: FakeClock) -> None:
    app, _, before = await set_up(console, clock)
    response = await console.call(console.sign_in.SignIn, attempt(app.code(), email=f" {EMAIL.upper()} "))
    assert response.signed_in.user.user_id == before.user.user_id
    assert response.signed_in.session.method == pb.SIGN_IN_METHOD_PASSWORD
    assert response.signed_in.user.has_password
    await console.resolve(before.session_token)


async def test_a_code_works_once_and_none_before_it_works_any_more(console: Console, clock: FakeClock) -> None:
    app, _, _ = await set_up(console, clock)
    sign_in = console.sign_in.SignIn
    assert await console.reason(sign_in, attempt(app.code())) is None
    assert await console.reason(sign_in, attempt(app.code())) is Reason.SIGN_IN_FAILED
    assert await console.reason(sign_in, attempt(app.code(-1))) is Reason.SIGN_IN_FAILED
    # A phone that is half a minute ahead.
    assert await console.reason(sign_in, attempt(app.code(1))) is None


async def test_unknown_users_and_wrong_passwords_and_codes_fail_alike_after_one_hash_each(
    console: Console, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, _, _ = await set_up(console, clock)
    hashed: list[bool] = []
    verify = PasswordHashes._verify

    def counted(self: PasswordHashes, stored: str, given: str) -> bool:
        hashed.append(bool(stored))
        return verify(self, stored, given)

    monkeypatch.setattr(PasswordHashes, "_verify", counted)
    failures = []
    for request in (
        attempt(app.code(), email="unknown@example.ca"),
        attempt(app.code(), password="another horse battery staple"),
        attempt("000000"),
        attempt(app.code(), email=""),
    ):
        with pytest.raises(LegatoError) as failure:
            await console.call(console.sign_in.SignIn, request)
        failures.append((failure.value.reason, failure.value.message))
    assert len(set(failures)) == 1
    assert failures[0][0] is Reason.SIGN_IN_FAILED
    assert hashed == [False, True, True, False]


async def test_a_password_without_an_authenticator_app_signs_no_user_in(console: Console, clock: FakeClock) -> None:
    signed_in = await console.use_link((await console.create_user(email=EMAIL)).code)
    token = (await console.resolve(signed_in.session_token)).access_token
    await console.call(console.credentials.SetPassword, cred.SetPasswordRequest(password=PASSWORD), token)
    assert await console.reason(console.sign_in.SignIn, attempt("000000")) is Reason.SIGN_IN_FAILED
    assert not (await console.resolve(signed_in.session_token)).user.has_password


async def test_wrong_passwords_are_limited_by_user_from_all_addresses_and_passkeys_and_links_are_not(
    console: Console, clock: FakeClock
) -> None:
    app, _, signed_in = await set_up(console, clock)
    sign_in = console.sign_in.SignIn
    reasons = [
        await console.reason(sign_in, attempt("000000", "x" * 15, address=f"198.51.100.{number}"))
        for number in range(7)
    ]
    assert reasons == [Reason.SIGN_IN_FAILED] * 5 + [Reason.TOO_MANY_SIGN_INS] * 2
    assert await console.reason(sign_in, attempt(app.code(), address="203.0.113.5")) is Reason.TOO_MANY_SIGN_INS
    link = pb.CreateSignInLinkRequest(user_id=signed_in.user.user_id)
    await console.use_link((await console.call(console.admin.CreateSignInLink, link)).code)
    clock.advance(60)
    assert await console.reason(sign_in, attempt(app.code(), address="203.0.113.5")) is None


async def test_a_password_with_a_code_steps_a_session_up(console: Console, clock: FakeClock) -> None:
    app, _, signed_in = await set_up(console, clock)
    clock.advance(3600)
    proof = pb.PasswordProof(password=PASSWORD, totp_code=app.code())
    wrong = pb.PasswordProof(password=PASSWORD, totp_code="000000")
    request = pb.StepUpRequest(session_token=signed_in.session_token, proof=pb.Proof(password=wrong), client=CLIENT)
    assert await console.reason(console.sign_in.StepUp, request) is Reason.SIGN_IN_FAILED
    request.proof.password.CopyFrom(proof)
    renewed = await console.call(console.sign_in.StepUp, request)
    token = (await console.resolve(renewed.signed_in.session_token)).access_token
    await console.call(console.credentials.StartTotp, cred.StartTotpRequest(), token)


async def test_setting_a_password_needs_a_step_up_and_removing_one_does_not(console: Console, clock: FakeClock) -> None:
    _, _, signed_in = await set_up(console, clock)
    clock.advance(3600)
    token = (await console.resolve(signed_in.session_token)).access_token
    set_password = cred.SetPasswordRequest(password=PASSWORD)
    reason = await console.reason(console.credentials.SetPassword, set_password, token)
    assert reason is Reason.STEP_UP_REQUIRED
    # It is the last way to sign in.
    remove = cred.RemovePasswordRequest()
    assert await console.reason(console.credentials.RemovePassword, remove, token) is Reason.REQUEST_INVALID


async def test_a_removed_password_no_longer_works(console: Console, clock: FakeClock) -> None:
    app, token, _ = await set_up(console, clock)
    await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)
    await console.call(console.credentials.RemovePassword, cred.RemovePasswordRequest(), token)
    assert await console.reason(console.sign_in.SignIn, attempt(app.code())) is Reason.SIGN_IN_FAILED
    known = await console.call(console.credentials.GetCredentials, cred.GetCredentialsRequest(), token)
    assert not known.HasField("password_set_time")
    assert not known.HasField("totp_set_time")
    assert known.methods.password


async def test_a_mistyped_code_and_a_reload_keep_the_secret_of_an_app(console: Console, clock: FakeClock) -> None:
    signed_in = await console.use_link((await console.create_user(email=EMAIL)).code)
    token = (await console.resolve(signed_in.session_token)).access_token
    start, put = console.credentials.StartTotp, console.credentials.SetTotp
    first = await console.call(start, cred.StartTotpRequest(), token)
    mistyped = cred.SetTotpRequest(challenge_id=first.challenge_id, code="000000")
    assert await console.reason(put, mistyped, token) is Reason.REQUEST_INVALID
    clock.advance(550)
    token = (await console.resolve(signed_in.session_token)).access_token
    again = await console.call(start, cred.StartTotpRequest(), token)
    assert (again.secret, again.uri, again.challenge_id) == (first.secret, first.uri, first.challenge_id)
    # It is good for as long as a new one: a user who was shown it just now has time to type a code.
    clock.advance(TOTP_CHALLENGE_VALID_US // 1_000_000 - 30)
    proof = pb.StepUpRequest(session_token=signed_in.session_token, client=CLIENT)
    proof.proof.sign_in_link_code = await link_code(console, signed_in.user.user_id)
    stepped_up = (await console.call(console.sign_in.StepUp, proof)).signed_in
    token = (await console.resolve(stepped_up.session_token)).access_token
    right = cred.SetTotpRequest(challenge_id=first.challenge_id, code=App(clock, first.secret).code())
    await console.call(put, right, token)
    replacing = await console.call(start, cred.StartTotpRequest(), token)
    assert replacing.secret != first.secret
    # Another session is never told a secret that was shown in this one.
    other = await console.use_link(await link_code(console, signed_in.user.user_id))
    token = (await console.resolve(other.session_token)).access_token
    assert (await console.call(start, cred.StartTotpRequest(), token)).secret != replacing.secret


async def link_code(console: Console, user_id: str) -> str:
    made = await console.call(console.admin.CreateSignInLink, pb.CreateSignInLinkRequest(user_id=user_id))
    return str(made.code)


async def test_edges_get_heartbeats_while_many_try_passwords(auth: AuthService, console: Console) -> None:
    pings: asyncio.Queue[Ping] = asyncio.Queue()

    async def sent() -> AsyncIterator[Ping]:
        while True:
            yield await pings.get()

    heartbeats = auth.watches.serve(sent())
    attempts = asyncio.gather(
        *(
            console.reason(
                console.sign_in.SignIn,
                attempt("000000", email=f"user{number}@example.ca", address=f"198.51.100.{number}"),
            )
            for number in range(200)
        )
    )
    answered = 0
    while not attempts.done():
        # Returns only once auth has read the database after this ping.
        pings.put_nowait(Ping(answered + 1, 0))
        heartbeat = await anext(heartbeats)
        answered += 1
        assert heartbeat.echoed_ping_no == answered
    reasons = await attempts
    hashed = reasons.count(Reason.SIGN_IN_FAILED)
    assert hashed > WAITING_MOST
    assert hashed + reasons.count(Reason.TOO_MANY_SIGN_INS) == 200
    # A lease lasts as long as some ten hashes.
    assert answered >= hashed / 5
    await heartbeats.aclose()


def test_libraries_of_sign_in_are_loaded_at_the_first_sign_in_only() -> None:
    import subprocess

    check = "import services.auth.__main__, sys; print([n for n in ('argon2', 'fido2', 'joserfc') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"
