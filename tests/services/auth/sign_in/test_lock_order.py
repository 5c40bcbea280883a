"""A passkey that signs in while it is removed: the two transactions wait in turn, and neither for the other."""

import asyncio

import pytest

from services.auth.peppers import Peppers
from services.auth.records.users import Client, Passkey
from services.auth.service import AuthService
from services.auth.sign_in.own_user import OwnUser
from services.auth.sign_in.passkeys import Passkeys
from services.auth.store import passkeys as stored
from services.auth.users.sessions import Sessions
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from tests.services.auth.console import ORIGIN
from tests.services.auth.sign_in.authenticator import Authenticator
from tests.services.auth.sign_in.test_single_use import Meeting, replicas  # noqa: F401
from tests.support.fakes import FakeClock


async def test_a_sign_in_and_the_removal_of_its_passkey_do_not_wait_for_each_other(
    replicas: list[AuthService],  # noqa: F811
    database: Database,
    peppers: Peppers,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = replicas
    summary, _, _ = await one.users.create("Ada", "", "", 0)
    sessions = Sessions(other._database, peppers, clock, other.audit, None)
    by = Access(summary.user.user_id, "", "", AccountRole.NONE, False, sessions.now_us(), 0)
    own = OwnUser(other._database, peppers, sessions, Passkeys([ORIGIN]), other.audit, other.mail)
    key = Authenticator(ORIGIN)
    passkey = await register(own, by, key)
    await register(own, by, Authenticator(ORIGIN))
    challenge_id, options = await one.sign_in.start_passkey(ORIGIN, Client("192.0.2.1"))
    meeting = Meeting(database)
    # The sign-in stays where it has locked the passkey.
    meeting.watch(monkeypatch, "note_use", stored)

    signing_in = asyncio.create_task(one.sign_in.with_passkey(challenge_id, key.sign_in(options), Client("192.0.2.1")))
    async with asyncio.timeout(60):
        while not meeting.is_staying and not signing_in.done():
            await asyncio.sleep(0.005)
        await own.remove_passkey(by, passkey.passkey_id)
        signed_in = await signing_in
    assert meeting.has_met
    assert signed_in.summary.user.user_id == summary.user.user_id
    challenge_id, options = await one.sign_in.start_passkey(ORIGIN, Client("192.0.2.1"))
    with pytest.raises(LegatoError) as refused:
        await one.sign_in.with_passkey(challenge_id, key.sign_in(options), Client("192.0.2.1"))
    assert refused.value.reason is Reason.SIGN_IN_FAILED


async def register(own: OwnUser, by: Access, key: Authenticator) -> Passkey:
    challenge_id, options = await own.start_registration(by, ORIGIN)
    return await own.finish_registration(by, challenge_id, key.register(options), "")
