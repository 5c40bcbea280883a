"""What users do for themselves: results that are shown once, and the first passkey of users who have nothing else."""

import pytest

from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.sign_in.servicers.own_user import LARGEST_RESULT_BYTES, RESULT_VALID_US
from services.chassis.errors import Reason
from tests.services.auth.console import CLIENT, ORIGIN, Console
from tests.services.auth.sign_in.authenticator import Authenticator
from tests.services.auth.sign_in.rules.test_sign_in import add_passkey
from tests.services.auth.sign_in.rules.test_sign_in import start as start_sign_in
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices

SEALED = b"a result, which auth cannot read"


async def test_a_result_is_told_once_to_the_session_that_kept_it(console: Console, clock: FakeClock) -> None:
    account_id = await console.create_account()
    (_, token), (_, other) = [await console.signed_in(account_id) for _ in range(2)]
    kept = await console.call(console.user.KeepResult, pb.KeepResultRequest(sealed=SEALED), token)
    take = pb.TakeResultRequest(result_id=kept.result_id)
    # An id that others learn is of no use, and takes nothing away.
    assert await console.reason(console.user.TakeResult, take, other) is Reason.NOT_FOUND
    assert (await console.call(console.user.TakeResult, take, token)).sealed == SEALED
    assert await console.reason(console.user.TakeResult, take, token) is Reason.NOT_FOUND


async def test_a_result_is_small_and_kept_for_minutes(console: Console, clock: FakeClock) -> None:
    signed_in, token = await console.signed_in(await console.create_account())
    large = pb.KeepResultRequest(sealed=b"x" * (LARGEST_RESULT_BYTES + 1))
    assert await console.reason(console.user.KeepResult, large, token) is Reason.REQUEST_INVALID
    kept = await console.call(console.user.KeepResult, pb.KeepResultRequest(sealed=SEALED), token)
    clock.advance(RESULT_VALID_US / 1e6)
    token = (await console.resolve(signed_in.session_token)).access_token
    late = pb.TakeResultRequest(result_id=kept.result_id)
    assert await console.reason(console.user.TakeResult, late, token) is Reason.NOT_FOUND


async def test_a_user_with_nothing_but_a_link_adds_a_first_passkey_and_confirms_with_it(
    console: Console, clock: FakeClock
) -> None:
    account_id = await console.create_account()
    signed_in, _ = await console.signed_in(account_id)
    clock.advance(3600)
    token = (await console.resolve(signed_in.session_token)).access_token
    assert await console.reason(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token) is (
        Reason.STEP_UP_REQUIRED
    )
    device = Authenticator(ORIGIN)
    await add_passkey(console, token, device)
    # It is no longer the first.
    start = pb.StartPasskeyRegistrationRequest(origin=ORIGIN)
    assert await console.reason(console.user.StartPasskeyRegistration, start, token) is Reason.STEP_UP_REQUIRED
    started = await start_sign_in(console)
    proof = pb.PasskeyProof(challenge_id=started.challenge_id, credential_json=device.sign_in(started.options_json))
    request = pb.StepUpRequest(session_token=signed_in.session_token, proof=pb.Proof(passkey=proof), client=CLIENT)
    renewed = (await console.call(console.sign_in.StepUp, request)).signed_in
    token = (await console.resolve(renewed.session_token)).access_token
    await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)


async def test_a_user_who_can_prove_who_they_are_does_so_before_a_first_passkey(
    console: Console, clock: FakeClock
) -> None:
    signed_in, token = await console.signed_in(await console.create_account())
    await console.call(console.user.GenerateRecoveryCodes, pb.GenerateRecoveryCodesRequest(), token)
    clock.advance(3600)
    token = (await console.resolve(signed_in.session_token)).access_token
    start = pb.StartPasskeyRegistrationRequest(origin=ORIGIN)
    assert await console.reason(console.user.StartPasskeyRegistration, start, token) is Reason.STEP_UP_REQUIRED
    finish = pb.FinishPasskeyRegistrationRequest(challenge_id="any", credential_json="{}")
    assert await console.reason(console.user.FinishPasskeyRegistration, finish, token) is Reason.STEP_UP_REQUIRED
