"""A passkey that signs in while it is removed: the two transactions wait in turn, and neither for the other."""

import asyncio

import pytest

from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.service import AuthService
from services.auth.sign_in.records import Client
from services.auth.sign_in.store import passkeys as stored
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from tests.services.auth.console import ORIGIN, call_directly
from tests.services.auth.sign_in.authenticator import Authenticator
from tests.services.auth.sign_in.rules.test_sign_in import with_proof
from tests.services.auth.sign_in.store.test_codes import Meeting, create_user, replicas  # noqa: F401


async def test_a_sign_in_and_the_removal_of_its_passkey_do_not_wait_for_each_other(
    replicas: list[AuthService],  # noqa: F811
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = replicas
    user_id = (await create_user(one)).user.user_id
    by = Access(user_id, "", "", AccountRole.NONE, False, other.sessions.now_us(), 0)
    key = Authenticator(ORIGIN)
    passkey = await register(other, by, key)
    await register(other, by, Authenticator(ORIGIN))
    challenge_id, options = await one.sign_in.start_passkey(ORIGIN, Client("192.0.2.1"))
    meeting = Meeting(database)
    # The sign-in stays where it has locked the passkey.
    meeting.watch(monkeypatch, "record_use", stored)

    client, proof = Client("192.0.2.1"), (challenge_id, key.sign_in(options))
    signing_in = asyncio.create_task(with_proof(one, client, passkey=proof))
    async with asyncio.timeout(60):
        while not meeting.is_staying and not signing_in.done():
            await asyncio.sleep(0.005)
        await call_directly(other, pb.RemovePasskeyRequest(passkey_id=passkey.passkey_id), by)
        signed_in = await signing_in
    assert meeting.has_met
    assert signed_in.summary.user.user_id == user_id
    challenge_id, options = await one.sign_in.start_passkey(ORIGIN, Client("192.0.2.1"))
    with pytest.raises(LegatoError) as refused:
        await with_proof(one, client, passkey=(challenge_id, key.sign_in(options)))
    assert refused.value.reason is Reason.SIGN_IN_FAILED


async def register(auth: AuthService, by: Access, key: Authenticator) -> pb.Passkey:
    begun = await call_directly(auth, pb.StartPasskeyRegistrationRequest(origin=ORIGIN), by)
    made = pb.FinishPasskeyRegistrationRequest(
        challenge_id=begun.challenge_id, credential_json=key.register(begun.options_json)
    )
    return (await call_directly(auth, made, by)).passkey  # type: ignore[no-any-return]
