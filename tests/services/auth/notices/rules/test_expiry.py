import asyncio

import pytest

from legato_protos.auth.v1 import auth_pb2
from services.auth.service import AuthService
from services.chassis.database.database import Database
from tests.services.auth.console import Console
from tests.services.auth.notices.rules.test_networks import DAY_S, make_key, told
from tests.support.fakes import FakeClock

pytestmark = pytest.mark.sqlite_suffices


async def test_a_key_that_expires_is_told_seven_days_before_and_one(
    auth: AuthService, console: Console, clock: FakeClock, database: Database
) -> None:
    account_id = await console.create_account()
    key_id = await make_key(console, account_id, 30)
    revoked = await make_key(console, account_id, 30)
    await make_key(console, account_id)
    await console.call(console.keys.RevokeKey, auth_pb2.RevokeKeyRequest(key_id=revoked))
    seen = []
    for _ in range(31):
        await auth.notice_loop.run_once()
        await auth.notice_loop.run_once()
        seen.append(len(await told(database, account_id)))
        clock.advance(DAY_S)
    assert seen == [0] * 23 + [1] * 6 + [2] * 2
    first, last = await told(database, account_id)
    assert {first.key_id, last.key_id} == {key_id}
    assert first.summary.startswith("The key laptop expires on ")


async def test_keys_are_told_of_once_by_two_replicas(
    auth: AuthService, console: Console, clock: FakeClock, database: Database
) -> None:
    account_id = await console.create_account()
    await make_key(console, account_id, 30)
    clock.advance(24 * DAY_S)
    await asyncio.gather(auth.notice_loop.run_once(), auth.notice_loop.run_once())
    assert len(await told(database, account_id)) == 1
