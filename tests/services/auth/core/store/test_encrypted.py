"""Email addresses are in no database page, and everything that uses them works as before."""

from pathlib import Path

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core.peppers import Peppers
from services.auth.service import AuthService, ConsoleOptions
from services.chassis.database.database import Database
from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import EMAIL, MEMBER, OPTIONS, Console, call_directly
from tests.support.fakes import FakeClock

OLD, NEW = f"1:{'ab' * 32}", f"2:{'cd' * 32}"


def stored_emails(database: Database) -> list[str]:
    with database.transaction(writes=False) as connection:
        texts = sa.text("SELECT email FROM users UNION ALL SELECT email FROM invitations")
        return list(connection.execute(texts).scalars())


def pages_in(folder: Path) -> bytes:
    """Reads SQLite's files; none for PostgreSQL, whose files are elsewhere."""
    return b"".join(path.read_bytes() for path in folder.rglob("*.db*"))


async def test_no_address_is_stored_in_plain_text(console: Console, database: Database, tmp_path: Path) -> None:
    account_id = await console.create_account()
    _, token = await console.signed_in(account_id)
    await console.create_user(account_id, email=EMAIL)
    invite = pb.InviteMemberRequest(account_id=account_id, email="grace@example.ca", role=MEMBER)
    await console.call(console.account.InviteMember, invite, token)

    stored = [text for text in stored_emails(database) if text]
    assert len(stored) == 2
    assert not any("@" in text or "example" in text for text in stored)
    assert b"example.ca" not in pages_in(tmp_path)
    listed = await console.call(console.account.ListMembers, pb.ListMembersRequest(account_id=account_id), token)
    assert {member.user.email for member in listed.members} == {"", EMAIL}
    assert [invitation.email for invitation in listed.invitations] == ["grace@example.ca"]
    request = pb.CreateUserRequest(name="Ada", email=EMAIL.upper())
    assert await console.reason(console.admin.CreateUser, request) is Reason.REQUEST_INVALID


async def test_plain_text_and_earlier_keys_are_encrypted_anew_at_the_next_start(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    def start(key: str) -> AuthService:
        return AuthService(
            database, peppers, clock, log, sleep, ConsoleOptions(OPTIONS.signing_key, encryption_key=key)
        )

    ada = pb.CreateUserRequest(name="Ada", email=EMAIL)
    await call_directly(start(""), ada)
    with database.transaction(writes=True) as connection:
        plain = sa.text("UPDATE users SET email = :email")
        connection.execute(plain, {"email": EMAIL})
    seen = set()
    for key in ("", OLD, f"{OLD},{NEW}", NEW):
        auth = start(key)
        await auth.encrypt_emails()
        [stored] = stored_emails(database)
        assert "@" not in stored
        seen.add(stored.partition(".")[0])
        listed = await call_directly(auth, pb.ListUsersRequest())
        assert [user.email for user in listed.users] == [EMAIL]
        with pytest.raises(Exception, match="already"):
            await call_directly(auth, ada)
    assert seen == {"p1", "k1", "k2"}


async def test_an_address_whose_key_is_gone_is_unknown_until_it_is_back(
    database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> None:
    shown: list[str] = []
    for key in (OLD, NEW, OLD):
        options = ConsoleOptions(OPTIONS.signing_key, encryption_key=key)
        auth = AuthService(database, peppers, clock, log, sleep, options)
        await auth.encrypt_emails()
        if not shown:
            await call_directly(auth, pb.CreateUserRequest(name="Ada", email=EMAIL))
        shown.append((await call_directly(auth, pb.ListUsersRequest())).users[0].email)
    assert shown == [EMAIL, "", EMAIL]
