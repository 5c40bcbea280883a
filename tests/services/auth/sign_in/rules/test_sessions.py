import pytest

from legato_protos.auth.v1 import users_pb2 as pb
from services.chassis.errors import Reason
from tests.services.auth.console import Console
from tests.services.auth.sign_in.rules.test_sign_in import HOUR_S
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices


async def test_a_session_ends_with_sign_out_at_once(console: Console) -> None:
    signed_in, token = await console.signed_in(await console.create_account())
    await console.call(console.sign_in.SignOut, pb.SignOutRequest(session_token=signed_in.session_token))
    old = pb.ResolveSessionRequest(session_token=signed_in.session_token)
    assert await console.reason(console.sign_in.ResolveSession, old) is Reason.SESSION_ENDED
    # Nor does the access token work any longer, though its minute is not over.
    assert await console.reason(console.user.ListSessions, pb.ListSessionsRequest(), token) is Reason.SESSION_ENDED


async def test_a_session_ends_when_it_is_idle_or_old(console: Console, clock: FakeClock) -> None:
    signed_in, _ = await console.signed_in(await console.create_account())
    request = pb.ResolveSessionRequest(session_token=signed_in.session_token)
    for _ in range(30):
        clock.advance(11 * HOUR_S)
        assert await console.reason(console.sign_in.ResolveSession, request) is None
    clock.advance(11 * HOUR_S)
    assert await console.reason(console.sign_in.ResolveSession, request) is Reason.SESSION_ENDED

    signed_in, _ = await console.signed_in(await console.create_account())
    clock.advance(12 * HOUR_S)
    idle = pb.ResolveSessionRequest(session_token=signed_in.session_token)
    assert await console.reason(console.sign_in.ResolveSession, idle) is Reason.SESSION_ENDED


async def test_an_operators_session_is_shorter(console: Console, clock: FakeClock) -> None:
    signed_in, _ = await console.signed_in(await console.create_account())
    request = pb.SetOperatorRequest(user_id=signed_in.user.user_id, is_operator=True)
    await console.call(console.admin.SetOperator, request)
    resolved = await console.resolve(signed_in.session_token)
    # A user who gets more rights gets a new token too, and the one before works a little longer.
    assert resolved.new_session_token
    await console.resolve(signed_in.session_token)
    clock.advance(60)
    old = pb.ResolveSessionRequest(session_token=signed_in.session_token)
    assert await console.reason(console.sign_in.ResolveSession, old) is Reason.SESSION_ENDED
    clock.advance(HOUR_S)
    idle = pb.ResolveSessionRequest(session_token=resolved.new_session_token)
    assert await console.reason(console.sign_in.ResolveSession, idle) is Reason.SESSION_ENDED


async def test_a_disabled_user_is_out_at_once_and_cannot_come_back(console: Console) -> None:
    signed_in, token = await console.signed_in(await console.create_account())
    user_id = signed_in.user.user_id
    await console.call(console.admin.DisableUser, pb.DisableUserRequest(user_id=user_id))
    assert await console.reason(console.user.ListSessions, pb.ListSessionsRequest(), token) is Reason.SESSION_ENDED
    link = pb.CreateSignInLinkRequest(user_id=user_id)
    assert await console.reason(console.admin.CreateSignInLink, link) is Reason.REQUEST_INVALID
