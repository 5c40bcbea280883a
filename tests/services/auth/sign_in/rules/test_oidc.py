"""Signs users in by OpenID Connect: with a real provider, and with an issuer that attacks."""

from collections.abc import Iterator
from typing import Any

import pytest

from legato_protos.auth.v1 import credentials_pb2 as cred
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.peppers import Peppers
from services.auth.service import AuthService, ConsoleOptions
from services.auth.sign_in.rules.oidc import OidcClaims, OidcClient, OidcIssuer, OidcRefused, parse_oidc_client
from services.chassis.database.database import Database
from services.chassis.errors import Reason
from services.chassis.settings import SettingsError
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import CLIENT, EMAIL, MEMBER, OPTIONS, ORIGIN, Console
from tests.support.fakes import FakeClock
from tests.support.outside.oidc_issuer import CLIENT_ID, CLIENT_SECRET, FakeIssuer
from tests.support.outside.oidc_provider import OidcProvider, running_provider

pytestmark = pytest.mark.sqlite_suffices


@pytest.fixture(scope="module")
def made_issuer() -> Iterator[FakeIssuer]:
    issuer = FakeIssuer()
    yield issuer
    issuer.close()


@pytest.fixture
def issuer(made_issuer: FakeIssuer, clock: FakeClock) -> FakeIssuer:
    made_issuer.claims, made_issuer.header, made_issuer.metadata, made_issuer.token = {}, {}, {}, ""
    made_issuer.now_s = clock.now().timestamp()
    made_issuer.published, made_issuer.key_requests = [made_issuer.key], 0
    return made_issuer


@pytest.fixture
def auth(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep, issuer: FakeIssuer
) -> AuthService:
    return AuthService(database, peppers, clock, log, sleep, options_for(issuer.issuer))


def options_for(issuer: str) -> ConsoleOptions:
    client = OidcClient(issuer, CLIENT_ID, CLIENT_SECRET)
    return ConsoleOptions(signing_key=OPTIONS.signing_key, origins=ORIGIN, oidc=client)


async def start(console: Console, invitation_code: str = "", *, again: bool = False) -> Any:
    request = cred.StartOidcSignInRequest(origin=ORIGIN, client=CLIENT, invitation_code=invitation_code, again=again)
    return await console.call(console.methods.StartOidcSignIn, request)


def finishing(returned: dict[str, str], browser_token: str, session_token: str = "") -> cred.FinishOidcSignInRequest:
    return cred.FinishOidcSignInRequest(
        state=returned["state"],
        code=returned["code"],
        issuer=returned.get("iss", ""),
        browser_token=browser_token,
        session_token=session_token,
        client=CLIENT,
    )


async def come_back(console: Console, issuer: FakeIssuer, invitation_code: str = "") -> Any:
    started = await start(console, invitation_code)
    request = finishing(issuer.begin(started.authorization_url), started.browser_token)
    return await console.call(console.methods.FinishOidcSignIn, request)


async def refusal(console: Console, issuer: FakeIssuer) -> Reason | None:
    started = await start(console)
    request = finishing(issuer.begin(started.authorization_url), started.browser_token)
    return await console.reason(console.methods.FinishOidcSignIn, request)


async def invite(console: Console, email: str = EMAIL) -> tuple[str, str]:
    """Invites a user; returns the account and the invitation's code."""
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    request = pb.InviteMemberRequest(account_id=account_id, email=email, role=MEMBER)
    return account_id, (await console.call(console.account.InviteMember, request, token)).code


async def link(console: Console, issuer: FakeIssuer) -> pb.SignedIn:
    """Makes a user with a linked identity."""
    signed_in, token = await console.signed_in(await console.create_account())
    request = cred.StartOidcLinkRequest(origin=ORIGIN)
    started = await console.call(console.credentials.StartOidcLink, request, token)
    returned = issuer.begin(started.authorization_url)
    finish = finishing(returned, started.browser_token, signed_in.session_token)
    linked = await console.call(console.methods.FinishOidcSignIn, finish)
    assert not linked.HasField("signed_in")
    return signed_in


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with running_provider() as running:
        yield running


class TestWithARealProvider:
    @pytest.fixture
    def auth(
        self, database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep, provider: OidcProvider
    ) -> AuthService:
        # Its tokens have the time of this machine.
        import time

        clock.advance(time.time() - clock.now().timestamp())
        return AuthService(database, peppers, clock, log, sleep, options_for(provider.issuer))

    async def test_an_invited_person_gets_in_with_their_login_and_comes_back(
        self, console: Console, provider: OidcProvider
    ) -> None:
        account_id, _ = await invite(console)
        provider.set_user("grace", email=EMAIL, email_verified=True, name="Grace Hopper")
        users = []
        for _ in range(2):
            started = await start(console)
            returned = provider.approve(started.authorization_url, "grace")
            done = await console.call(console.methods.FinishOidcSignIn, finishing(returned, started.browser_token))
            assert done.signed_in.session.method == pb.SIGN_IN_METHOD_OIDC
            resolved = await console.resolve(done.signed_in.session_token)
            assert (resolved.account_id, resolved.user.name) == (account_id, "Grace Hopper")
            users.append((resolved.user.user_id, done.account_id))
        assert users == [(users[0][0], account_id), (users[0][0], "")]

    async def test_a_person_who_was_not_invited_does_not_get_in(self, console: Console, provider: OidcProvider) -> None:
        await invite(console)
        provider.set_user("mallory", email="mallory@example.ca", email_verified=True)
        provider.set_user("claims-it", email=EMAIL, email_verified=False)
        for subject in ("mallory", "claims-it"):
            started = await start(console)
            request = finishing(provider.approve(started.authorization_url, subject), started.browser_token)
            assert await console.reason(console.methods.FinishOidcSignIn, request) is Reason.SIGN_IN_FAILED


async def claims_of(issuer: FakeIssuer, clock: FakeClock, log: Log) -> OidcClaims:
    """Exchanges a code and verifies the token, without a database behind it."""
    client = OidcClient(issuer.issuer, CLIENT_ID, CLIENT_SECRET)
    connected = OidcIssuer(client, lambda: round(clock.now().timestamp() * 1e6), log)
    issuer.begin(await connected.authorization_url("https://c.example/return", "state", "nonce", "verifier"))
    return await connected.claims_of("code-1", "https://c.example/return", "nonce", "verifier")


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"iss": "https://another.example"},
        {"aud": "another-client"},
        {"aud": [CLIENT_ID, "another-client"]},
        {"aud": [CLIENT_ID, "another-client"], "azp": "another-client"},
        {"azp": "another-client"},
        {"exp": 1},
        {"sub": ""},
        {"sub": "x" * 300},
        {"nonce": None},
        {"exp": "never"},
    ],
    ids=str,
)
async def test_a_token_with_wrong_claims_proves_nothing(
    issuer: FakeIssuer, clock: FakeClock, log: Log, claims: dict[str, Any]
) -> None:
    issuer.claims = claims
    with pytest.raises(OidcRefused):
        await claims_of(issuer, clock, log)


async def test_a_token_with_right_claims_proves_who_a_user_is(issuer: FakeIssuer, clock: FakeClock, log: Log) -> None:
    issuer.claims = {"aud": [CLIENT_ID, "api"], "azp": CLIENT_ID, "email": f" {EMAIL.upper()}", "email_verified": True}
    claims = await claims_of(issuer, clock, log)
    assert (claims.subject, claims.email) == ("subject-1", EMAIL)
    issuer.claims = {"email": EMAIL, "email_verified": "false"}
    assert (await claims_of(issuer, clock, log)).email == ""


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
async def test_a_token_without_a_signature_or_with_a_public_secret_proves_nothing(
    issuer: FakeIssuer, clock: FakeClock, log: Log, algorithm: str
) -> None:
    issuer.header = {"alg": algorithm}
    with pytest.raises(OidcRefused):
        await claims_of(issuer, clock, log)


@pytest.mark.parametrize("token", ["not a token", "a.b.c", "...", "eyJhbGciOiJSUzI1NiJ9.W10.AA"])
async def test_what_is_no_token_proves_nothing(issuer: FakeIssuer, clock: FakeClock, log: Log, token: str) -> None:
    issuer.token = token
    with pytest.raises(OidcRefused):
        await claims_of(issuer, clock, log)


async def test_a_code_of_another_attempt_and_a_response_of_another_issuer_fail(
    console: Console, issuer: FakeIssuer
) -> None:
    await link(console, issuer)
    finish = console.methods.FinishOidcSignIn
    first, second = await start(console), await start(console)
    returned = issuer.begin(first.authorization_url)
    # The code belongs to the challenge of the first one.
    mixed = {**returned, "state": issuer.begin(second.authorization_url)["state"]}
    issuer.begin(first.authorization_url)
    assert await console.reason(finish, finishing(mixed, second.browser_token)) is Reason.SIGN_IN_FAILED
    third = await start(console)
    returned = {**issuer.begin(third.authorization_url), "iss": "https://another.example"}
    assert await console.reason(finish, finishing(returned, third.browser_token)) is Reason.SIGN_IN_FAILED


async def test_new_keys_of_the_issuer_are_found_and_made_up_ones_cause_one_request_a_minute(
    console: Console, issuer: FakeIssuer, clock: FakeClock
) -> None:
    await link(console, issuer)
    assert issuer.key_requests == 1
    clock.advance(61)
    issuer.now_s += 61
    issuer.rotate()
    await come_back(console, issuer)
    assert issuer.key_requests == 2
    issuer.rotate(publish=False)
    for _ in range(3):
        assert await refusal(console, issuer) is Reason.SIGN_IN_FAILED
    assert issuer.key_requests == 2
    clock.advance(61)
    issuer.now_s += 61
    assert await refusal(console, issuer) is Reason.SIGN_IN_FAILED
    assert issuer.key_requests == 3


async def test_the_browser_is_sent_with_pkce_and_is_asked_again_where_that_is_wanted(
    console: Console, issuer: FakeIssuer, clock: FakeClock
) -> None:
    issuer.begin((await start(console, again=True)).authorization_url)
    asked = issuer.asked
    assert (asked["code_challenge_method"], asked["response_type"], asked["client_id"]) == ("S256", "code", CLIENT_ID)
    assert asked["redirect_uri"] == f"{ORIGIN}/sign-in/sso/return"
    assert (asked["prompt"], asked["max_age"]) == ("login", "0")

    # A user who proved long ago who they are has to do it again for what grants access.
    await link(console, issuer)
    issuer.claims = {"auth_time": int(clock.now().timestamp()) - 3600}
    done = await come_back(console, issuer)
    token = (await console.resolve(done.signed_in.session_token)).access_token
    request = cred.StartOidcLinkRequest(origin=ORIGIN)
    assert await console.reason(console.credentials.StartOidcLink, request, token) is Reason.STEP_UP_REQUIRED


async def test_metadata_that_names_another_issuer_or_an_open_wire_is_refused(
    console: Console, issuer: FakeIssuer
) -> None:
    request = cred.StartOidcSignInRequest(origin=ORIGIN, client=CLIENT)
    for wrong in ({"issuer": "https://another.example"}, {"token_endpoint": "http://issuer.example/token"}):
        issuer.metadata = wrong
        assert await console.reason(console.methods.StartOidcSignIn, request) is Reason.UNAVAILABLE


def test_an_issuer_is_https_and_has_a_client() -> None:
    assert parse_oidc_client("", "", "") is None
    assert parse_oidc_client("https://login.example.ca", "legato", "") is not None
    for issuer, client_id in (("http://login.example.ca", "legato"), ("https://login.example.ca", ""), ("login", "x")):
        with pytest.raises(SettingsError):
            parse_oidc_client(issuer, client_id, "")
