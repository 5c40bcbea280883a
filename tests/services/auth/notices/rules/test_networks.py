"""Notices about keys: those that expire soon, and those that are used from a new network."""

import sqlalchemy as sa

from legato_protos.auth.v1 import auth_pb2
from services.auth.notices.records import OwnerNotice
from services.auth.notices.rules.networks import FORGOTTEN_AFTER_US, NETWORKS_MOST, KeyNetworks
from services.auth.notices.store import notices as stored
from services.auth.notices.store.tables import key_networks, notices
from services.auth.service import AuthService
from services.chassis.database.database import Database
from services.chassis.telemetry.log import Log
from tests.services.auth.client import AuthClient
from tests.services.auth.console import Console
from tests.support.fakes import FakeClock

DAY_S = 86_400
HOME, AWAY = "203.0.113.0/24", "198.51.100.0/24"


async def make_key(console: Console, account_id: str, days: int | None = None) -> str:
    request = auth_pb2.CreateKeyRequest(account_id=account_id, name="laptop", expires_after_days=days)
    return str((await console.call(console.keys.CreateKey, request)).key.key_id)


async def told(database: Database, account_id: str) -> list[OwnerNotice]:
    found = await database.read(stored.list_notices, account_id=account_id, limit=100)
    return [notice for notice, _ in reversed(found)]


async def use(auth: AuthService, *used: tuple[str, str]) -> None:
    auth.key_networks.record(used)
    await auth.key_networks.written()


async def test_the_first_network_is_learned_and_another_is_told(
    auth: AuthService, console: Console, clock: FakeClock, database: Database
) -> None:
    account_id = await console.create_account()
    key_id = await make_key(console, account_id)
    await use(auth, (key_id, HOME), ("key_unknown", HOME), (key_id, "nonsense"), (key_id, "10.0.0.0/8"))
    assert await told(database, account_id) == []
    await use(auth, (key_id, AWAY), (key_id, HOME))
    [notice] = await told(database, account_id)
    assert (notice.kind, notice.key_id) == ("key.new_network", key_id)
    assert notice.summary == f"The key laptop was used from {AWAY}, where it had not been used before."
    clock.advance(DAY_S)
    await use(auth, (key_id, AWAY), (key_id, HOME))
    assert len(await told(database, account_id)) == 1
    with database.transaction(writes=False) as connection:
        stored_bodies = connection.execute(sa.select(sa.type_coerce(notices.c.body, sa.Text))).scalars().all()
        assert AWAY not in "".join(stored_bodies)
        assert all(len(digest) == 16 for digest in connection.execute(sa.select(key_networks.c.digest)).scalars())


async def test_a_network_that_was_not_used_for_long_is_new_again(
    auth: AuthService, console: Console, clock: FakeClock, database: Database
) -> None:
    account_id = await console.create_account()
    key_id = await make_key(console, account_id)
    await use(auth, (key_id, HOME))
    await use(auth, (key_id, AWAY))
    for _ in range(100):
        clock.advance(FORGOTTEN_AFTER_US / 1e6 / 90)
        await use(auth, (key_id, HOME))
    await auth.notice_loop.run_once()
    await use(auth, (key_id, AWAY))
    # The first notice was forgotten meanwhile.
    assert [notice.kind for notice in await told(database, account_id)] == ["key.new_network"]


async def test_a_key_that_moves_about_gives_three_notices_a_day_and_takes_little_room(
    auth: AuthService, console: Console, clock: FakeClock, database: Database
) -> None:
    account_id = await console.create_account()
    key_id = await make_key(console, account_id)
    await use(auth, *((key_id, f"10.{number}.0.0/24") for number in range(NETWORKS_MOST + 20)))
    assert len(await told(database, account_id)) == 2
    clock.advance(DAY_S)
    await use(auth, (key_id, HOME))
    assert len(await told(database, account_id)) == 3
    with database.transaction(writes=False) as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(key_networks)).scalar_one() == NETWORKS_MOST


async def test_networks_are_reported_with_pings(auth: AuthService, client: AuthClient, database: Database) -> None:
    account = await client.create_account()
    key_id = (await client.create_key(account.account_id)).key.key_id
    call = client.watch()
    for number, network in enumerate((HOME, AWAY), start=1):
        used = [auth_pb2.KeyNetwork(key_id=key_id, network=network)]
        await call.write(auth_pb2.WatchRequest(ping_no=number, epoch=1, used_networks=used))
        await call.read()
        await auth.key_networks.written()
    assert len(await told(database, account.account_id)) == 1


async def test_a_database_that_is_away_loses_no_network(
    auth: AuthService, console: Console, database: Database, log: Log, clock: FakeClock
) -> None:
    account_id = await console.create_account()
    key_id = await make_key(console, account_id)
    await use(auth, (key_id, HOME))
    networks: KeyNetworks = auth.key_networks
    learn, networks.write = networks.write, _fail  # type: ignore[method-assign]
    await use(auth, (key_id, AWAY))
    networks.write = learn  # type: ignore[method-assign]
    await use(auth, (key_id, HOME))
    assert len(await told(database, account_id)) == 1


def _fail(connection: object, reports: object) -> None:
    raise ConnectionError
