"""A code that two replicas use in the same moment works once.

The moment is made, not hoped for: the first transaction stays open after it has used the code, until the second one has
used it too or waits for the first.
"""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Final

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2
from legato_protos.auth.v1 import users_pb2 as pb
from services.auth.core import codes
from services.auth.core.peppers import Peppers
from services.auth.core.store.tables import memberships, sessions, users
from services.auth.people.servicers import users as servicers_users
from services.auth.service import AuthService
from services.auth.sign_in.records import Client
from services.auth.sign_in.store import codes as stored_codes
from services.chassis.access_tokens import Access, AccountRole
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from tests.services.auth.conftest import FakeSleep
from tests.services.auth.console import MEMBER, OPTIONS, OWNER, call_directly
from tests.services.auth.sign_in.rules.test_sign_in import with_proof
from tests.support.fakes import FakeClock

WAIT_TIMEOUT_S: Final = 60.0
# SQLite's writers wait before they begin; PostgreSQL's where they meet a row that another has changed.
WAITING: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Meeting:
    """Lets transactions meet at the use of a code."""

    def __init__(self, watcher: Database) -> None:
        self._watcher = watcher
        self._used = 0
        self._begun: set[int] = set()
        self._lock = threading.Lock()
        self.has_met = False
        self.is_staying = False

    def watch(self, patch: pytest.MonkeyPatch, method: str, module: ModuleType = stored_codes) -> None:
        use, begin = getattr(module, method), Database._begin_write

        def use_and_stay(*given: Any, **options: Any) -> Any:
            used = use(*given, **options)
            if used is not None or module is not stored_codes:
                self._stay()
            return used

        def begin_write(database: Database, lock_timeout_s: float | None) -> sa.Connection:
            self._begun.add(id(database))
            return begin(database, lock_timeout_s)

        patch.setattr(module, method, use_and_stay)
        patch.setattr(Database, "_begin_write", begin_write)

    def _stay(self) -> None:
        with self._lock:
            self._used += 1
            if self._used > 1:
                return
        self.is_staying = True
        give_up_at = time.monotonic() + WAIT_TIMEOUT_S
        while time.monotonic() < give_up_at:
            if self._used > 1 or self._other_waits():
                self.has_met = True
                return
            time.sleep(0.005)

    def _other_waits(self) -> bool:
        if self._watcher.is_sqlite:
            return len(self._begun) == 2
        with self._watcher.transaction(writes=False) as connection:
            waiting: int = connection.execute(sa.text(WAITING)).scalar_one()
        return waiting > 0


@pytest.fixture
def replicas(
    database_url: str, database: Database, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep
) -> Iterator[list[AuthService]]:
    other = Database(database_url, "auth")
    yield [AuthService(each, peppers, clock, log, sleep, OPTIONS) for each in (database, other)]
    other.close()


async def meet(
    database: Database,
    patch: pytest.MonkeyPatch,
    method: str,
    attempts: Sequence[Callable[[Client], Awaitable[Any]]],
    module: ModuleType = stored_codes,
) -> list[Reason]:
    """Makes all attempts at once, each from an address of its own, since those of one address wait for each other."""
    meeting = Meeting(database)
    meeting.watch(patch, method, module)
    made = [attempt(Client(f"198.51.100.{number}")) for number, attempt in enumerate(attempts)]
    outcomes = await asyncio.gather(*made, return_exceptions=True)
    assert meeting.has_met
    unexpected = [each for each in outcomes if isinstance(each, BaseException) and not isinstance(each, LegatoError)]
    assert unexpected == []
    return [each.reason for each in outcomes if isinstance(each, LegatoError)]


async def create_user(auth: AuthService, **fields: Any) -> pb.CreateUserResponse:
    return await call_directly(auth, pb.CreateUserRequest(name="Ada", **fields))  # type: ignore[no-any-return]


def count_rows(database: Database, table: sa.Table) -> int:
    with database.transaction(writes=False) as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


async def test_an_invitation_is_accepted_by_one_of_two(
    replicas: list[AuthService], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = await call_directly(replicas[0], auth_pb2.CreateAccountRequest(name="Acme"))
    account_id = account.account.account_id
    created = await create_user(replicas[0], account_id=account_id, role=OWNER)
    by = Access(created.user.user_id, "", account_id, AccountRole.OWNER, False, 0, 0)
    code = (await call_directly(replicas[0], pb.InviteMemberRequest(role=MEMBER), by)).code
    attempts = [partial(each.sign_in.accept_invitation, code, "Grace", "") for each in replicas]

    assert await meet(database, monkeypatch, "use_invitation", attempts) == [Reason.SIGN_IN_FAILED]
    assert count_rows(database, memberships) == 2


async def test_a_link_signs_one_of_two_in(
    replicas: list[AuthService], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (await create_user(replicas[0])).code
    attempts = [partial(with_proof, each, link_code=code) for each in replicas]

    assert await meet(database, monkeypatch, "use_link", attempts) == [Reason.SIGN_IN_FAILED]
    assert count_rows(database, sessions) == 1


async def test_a_recovery_code_signs_one_of_two_in(
    replicas: list[AuthService], database: Database, peppers: Peppers, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await create_user(replicas[0])
    code = codes.mint_code()
    digest = peppers.digest_code(codes.RECOVERY, codes.plain(code))
    with database.transaction(writes=True) as connection:
        stored_codes.put_recovery_codes(connection, created.user.user_id, [digest], 0)
    attempts = [partial(with_proof, each, recovery_code=code) for each in replicas]

    assert await meet(database, monkeypatch, "use_recovery_code", attempts) == [Reason.SIGN_IN_FAILED]
    assert count_rows(database, sessions) == 1


async def test_an_address_is_given_to_one_of_two_new_users(
    replicas: list[AuthService], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create(replica: AuthService, client: Client) -> None:
        await create_user(replica, email="ada@example.ca")

    attempts = [partial(create, each) for each in replicas]

    assert await meet(database, monkeypatch, "add", attempts, servicers_users) == [Reason.REQUEST_INVALID]
    assert count_rows(database, users) == 1
