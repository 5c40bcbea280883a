import asyncio
from collections.abc import Callable

import pytest
import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.core.parts import Parts
from services.auth.core.peppers import Peppers
from services.auth.core.times import HOUR_US
from services.auth.keys.rules.last_uses import LastUses
from services.auth.service import AuthService
from services.chassis.database.database import Database
from services.chassis.database.outages import DatabaseUnavailable
from services.chassis.telemetry.log import Log
from tests.services.auth.client import AuthClient, WatchCall, ping
from tests.support.fakes import FakeClock

HOUR_S = HOUR_US / 1e6


async def tell_use(call: WatchCall, number: int, *key_ids: str) -> None:
    await call.write(pb.WatchRequest(ping_no=number, epoch=1, used_key_ids=key_ids))
    assert isinstance(await call.read(), pb.WatchResponse)


async def listed(client: AuthClient, account_id: str) -> list[pb.Key]:
    return list((await client.keys.ListKeys(pb.ListKeysRequest(account_id=account_id))).keys)


async def test_last_use_is_told_by_the_hour(client: AuthClient, auth: AuthService, clock: FakeClock) -> None:
    account = await client.create_account()
    used, unused = [(await client.create_key(account.account_id)).key for _ in range(2)]
    noon = clock.now()
    clock.advance(59 * 60)
    call = client.watch()
    await tell_use(call, 1, used.key_id)
    await auth.last_uses.written()
    by_id = {key.key_id: key for key in await listed(client, account.account_id)}
    assert by_id[used.key_id].last_use_time.ToDatetime(noon.tzinfo) == noon
    assert not by_id[unused.key_id].HasField("last_use_time")
    clock.advance(HOUR_S)
    await tell_use(call, 2, used.key_id)
    await auth.last_uses.written()
    [again] = [key for key in await listed(client, account.account_id) if key.key_id == used.key_id]
    assert again.last_use_time.ToDatetime(noon.tzinfo).hour == noon.hour + 1
    call.cancel()


async def test_slow_write_of_uses_holds_up_no_heartbeat(
    client: AuthClient, auth: AuthService, database: Database
) -> None:
    account = await client.create_account()
    key = (await client.create_key(account.account_id)).key
    may_end, call = asyncio.Event(), client.watch()
    loop = asyncio.get_running_loop()

    def write_slowly(connection: sa.Connection) -> None:
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result(timeout=30)

    # The one thread that writes is busy.
    writing = database.write(write_slowly)
    await tell_use(call, 1, key.key_id)
    assert (await ping(call, 2, epoch=1)).echoed_ping_no == 2
    may_end.set()
    await writing
    await auth.last_uses.written()
    assert (await listed(client, account.account_id))[0].HasField("last_use_time")
    call.cancel()


async def test_uses_that_cannot_be_written_wait_for_better_times(
    database: Database,
    peppers: Peppers,
    clock: FakeClock,
    log: Log,
    log_text: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[str] = []
    is_away = True

    async def write(change: object, reports: object) -> None:
        if is_away:
            raise DatabaseUnavailable
        noted.append("written")

    monkeypatch.setattr(database, "write", write)
    uses = LastUses(Parts(database, peppers, clock, log))
    for _ in range(2):
        uses.record(["key_a"])
        await uses.written()
    assert log_text().count("key_uses.not_written") == 1
    is_away = False
    uses.record(["key_b"])
    await uses.written()
    assert noted == ["written"]
    assert uses._waiting == {}


async def test_what_cannot_be_a_key_is_not_asked_of_the_database(client: AuthClient, auth: AuthService) -> None:
    account = await client.create_account()
    key = (await client.create_key(account.account_id)).key
    call = client.watch()
    await tell_use(call, 1, "key_\0", "", key.key_id)
    await auth.last_uses.written()
    assert (await listed(client, account.account_id))[0].HasField("last_use_time")
    call.cancel()
