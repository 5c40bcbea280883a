# ruff: noqa: F811
import pytest

from legato_protos.auth.v1 import credentials_pb2 as cred
from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import Reason
from tests.services.auth.console import CLIENT, ORIGIN, Console
from tests.services.auth.sign_in.rules.test_oidc import (  # noqa: F401
    auth,
    come_back,
    finishing,
    invite,
    issuer,
    link,
    made_issuer,
    refusal,
    start,
)
from tests.support.fakes import FakeClock
from tests.support.outside.oidc_issuer import FakeIssuer

pytestmark = pytest.mark.sqlite_suffices


async def test_a_linked_identity_signs_its_user_in(console: Console, issuer: FakeIssuer) -> None:
    before = await link(console, issuer)
    done = await come_back(console, issuer)
    assert done.signed_in.user.user_id == before.user.user_id
    assert done.signed_in.user.identities == 1
    # Other sessions go on.
    await console.resolve(before.session_token)


async def test_linking_is_for_the_session_that_began_it(console: Console, issuer: FakeIssuer) -> None:
    _, token = await console.signed_in(await console.create_account())
    other, _ = await console.signed_in(await console.create_account())
    request = cred.StartOidcLinkRequest(origin=ORIGIN)
    for session_token in ("", other.session_token):
        started = await console.call(console.credentials.StartOidcLink, request, token)
        finish = finishing(issuer.begin(started.authorization_url), started.browser_token, session_token)
        assert await console.reason(console.methods.FinishOidcSignIn, finish) is Reason.SIGN_IN_FAILED


async def test_an_identity_belongs_to_one_user_and_the_last_way_in_stays(console: Console, issuer: FakeIssuer) -> None:
    signed_in = await link(console, issuer)
    with pytest.raises(Exception, match="did not work"):
        await link(console, issuer)
    token = (await console.resolve(signed_in.session_token)).access_token
    known = await console.call(console.credentials.GetCredentials, cred.GetCredentialsRequest(), token)
    remove = cred.RemoveOidcIdentityRequest(identity_id=known.identities[0].identity_id)
    assert await console.reason(console.credentials.RemoveOidcIdentity, remove, token) is Reason.REQUEST_INVALID
    await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)
    await console.call(console.credentials.RemoveOidcIdentity, remove, token)
    assert await refusal(console, issuer) is Reason.SIGN_IN_FAILED


async def test_an_invitation_is_accepted_with_any_identity_and_once(console: Console, issuer: FakeIssuer) -> None:
    account_id, code = await invite(console, "")
    done = await come_back(console, issuer, code)
    assert done.account_id == account_id
    assert (await console.resolve(done.signed_in.session_token)).account_id == account_id
    request = cred.StartOidcSignInRequest(origin=ORIGIN, client=CLIENT, invitation_code=code)
    assert await console.reason(console.methods.StartOidcSignIn, request) is Reason.SIGN_IN_FAILED


async def test_a_disabled_user_does_not_get_in(console: Console, issuer: FakeIssuer) -> None:
    signed_in = await link(console, issuer)
    await console.call(console.admin.DisableUser, pb.DisableUserRequest(user_id=signed_in.user.user_id))
    assert await refusal(console, issuer) is Reason.SIGN_IN_FAILED


async def test_a_state_works_once_for_minutes_and_in_its_own_browser(
    console: Console, issuer: FakeIssuer, clock: FakeClock
) -> None:
    await link(console, issuer)
    finish = console.methods.FinishOidcSignIn
    started = await start(console)
    request = finishing(issuer.begin(started.authorization_url), started.browser_token)
    await console.call(finish, request)
    assert await console.reason(finish, request) is Reason.SIGN_IN_FAILED

    # The victim's browser brings the attacker's state and code.
    attackers, victims = await start(console), await start(console)
    stolen = finishing(issuer.begin(attackers.authorization_url), victims.browser_token)
    assert await console.reason(finish, stolen) is Reason.SIGN_IN_FAILED
    # It is used up.
    own = finishing(issuer.begin(attackers.authorization_url), attackers.browser_token)
    assert await console.reason(finish, own) is Reason.SIGN_IN_FAILED

    late = await start(console)
    clock.advance(601)
    request = finishing(issuer.begin(late.authorization_url), late.browser_token)
    assert await console.reason(finish, request) is Reason.SIGN_IN_FAILED
