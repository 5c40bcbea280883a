import pytest

from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import Reason
from tests.services.auth.console import CLIENT, ORIGIN, Console
from tests.services.auth.sign_in.authenticator import Authenticator
from tests.services.auth.sign_in.rules.test_sign_in import add_passkey, finish, start

pytestmark = pytest.mark.sqlite_suffices


async def test_a_passkey_signs_in_and_works_for_a_step_up(console: Console) -> None:
    signed_in, token = await console.signed_in(await console.create_account())
    passkey = Authenticator(ORIGIN)
    await add_passkey(console, token, passkey)

    started = await start(console)
    again = await console.call(console.sign_in.SignIn, finish(started, passkey.sign_in(started.options_json)))
    assert again.signed_in.user.user_id == signed_in.user.user_id
    # The other session goes on.
    await console.resolve(signed_in.session_token)

    started = await start(console)
    proof = pb.PasskeyProof(challenge_id=started.challenge_id, credential_json=passkey.sign_in(started.options_json))
    request = pb.StepUpRequest(session_token=signed_in.session_token, proof=pb.Proof(passkey=proof), client=CLIENT)
    renewed = await console.call(console.sign_in.StepUp, request)
    assert renewed.signed_in.session.session_id == signed_in.session.session_id
    await console.resolve(renewed.signed_in.session_token)
    old = pb.ResolveSessionRequest(session_token=signed_in.session_token)
    assert await console.reason(console.sign_in.ResolveSession, old) is Reason.SESSION_ENDED


async def test_an_answer_of_a_passkey_is_good_once_on_its_own_origin_and_with_user_verification(
    console: Console,
) -> None:
    _, token = await console.signed_in(await console.create_account())
    passkey = Authenticator(ORIGIN)
    await add_passkey(console, token, passkey)
    started = await start(console)
    request = finish(started, passkey.sign_in(started.options_json))
    await console.call(console.sign_in.SignIn, request)
    assert await console.reason(console.sign_in.SignIn, request) is Reason.SIGN_IN_FAILED

    passkey.origin = "http://localhost:9999"
    started = await start(console)
    elsewhere = finish(started, passkey.sign_in(started.options_json))
    assert await console.reason(console.sign_in.SignIn, elsewhere) is Reason.SIGN_IN_FAILED

    passkey.origin, passkey.count = ORIGIN, 0
    started = await start(console)
    copied = finish(started, passkey.sign_in(started.options_json))
    assert await console.reason(console.sign_in.SignIn, copied) is Reason.SIGN_IN_FAILED

    careless, request_start = Authenticator(ORIGIN, verifies_user=False), pb.StartPasskeyRegistrationRequest()
    request_start.origin = ORIGIN
    begun = await console.call(console.user.StartPasskeyRegistration, request_start, token)
    made = pb.FinishPasskeyRegistrationRequest(
        challenge_id=begun.challenge_id, credential_json=careless.register(begun.options_json)
    )
    assert await console.reason(console.user.FinishPasskeyRegistration, made, token) is Reason.SIGN_IN_FAILED
