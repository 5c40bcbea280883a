"""Replicas of auth on one PostgreSQL, and what they do when it goes away."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.core.peppers import Peppers
from services.auth.service import MIGRATIONS, AuthService
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import open_channel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from tests.services.auth.client import AuthClient, ping
from tests.services.auth.conftest import FakeSleep
from tests.support.fakes import FakeClock


@pytest.fixture
async def replicas(
    postgres_url: str, peppers: Peppers, clock: FakeClock, log: Log, sleep: FakeSleep, socket_folder: Path
) -> AsyncIterator[list[AuthClient]]:
    clients = []
    async with AsyncExitStack() as stack:
        for number in (1, 2):
            database = Database(postgres_url, "auth")
            stack.callback(database.close)
            database.migrate(MIGRATIONS)
            address = f"unix:{socket_folder}/auth-{number}.sock"
            server = RpcServer(address, AuthService(database, peppers, clock, log, sleep).servicers, log)
            await server.start()
            stack.push_async_callback(server.stop, 0)
            clients.append(AuthClient(await stack.enter_async_context(open_channel(address))))
        yield clients


async def test_key_made_at_one_replica_works_at_the_other(replicas: list[AuthClient]) -> None:
    one, other = replicas
    account = await one.create_account()
    created = await one.create_key(account.account_id)
    assert (await other.verify(created.api_key)).principal.account_id == account.account_id


async def test_revocation_at_one_replica_is_in_the_next_heartbeat_of_the_other(replicas: list[AuthClient]) -> None:
    one, other = replicas
    account = await one.create_account()
    created = await one.create_key(account.account_id)
    call = other.watch()
    assert (await ping(call, 1, epoch=1)).changed_key_ids == []
    await one.revoke_key(created.key.key_id)
    heartbeat = await ping(call, 2, epoch=1)
    assert (heartbeat.epoch, list(heartbeat.changed_key_ids)) == (2, [created.key.key_id])
    with pytest.raises(LegatoError):
        await other.verify(created.api_key)
    call.cancel()


async def test_revocations_at_both_replicas_at_once_are_all_listed(replicas: list[AuthClient]) -> None:
    account = await replicas[0].create_account()
    key_ids = [(await replicas[0].create_key(account.account_id)).key.key_id for _ in range(10)]
    await asyncio.gather(*(replicas[number % 2].revoke_key(key_id) for number, key_id in enumerate(key_ids)))
    call = replicas[1].watch()
    heartbeat = await ping(call, 1, epoch=1)
    assert (heartbeat.epoch, set(heartbeat.changed_key_ids)) == (11, set(key_ids))
    call.cancel()


async def test_database_that_goes_away_and_comes_back(
    replicas: list[AuthClient], postgres_url: str, log_text: Callable[[], str]
) -> None:
    client = replicas[0]
    account = await client.create_account()
    created = await client.create_key(account.account_id)
    call = client.watch()
    await ping(call, 1, epoch=1)

    set_connections(postgres_url, allowed=False)
    with pytest.raises(LegatoError) as caught:
        await client.verify(created.api_key)
    assert caught.value.reason is Reason.UNAVAILABLE
    await call.write(pb.WatchRequest(ping_no=2, epoch=1))
    heartbeat = asyncio.ensure_future(call.read())
    async with asyncio.timeout(60):
        while "watch.read_failed" not in log_text():
            await asyncio.sleep(0.01)
    assert not heartbeat.done()

    set_connections(postgres_url, allowed=True)
    await call.write(pb.WatchRequest(ping_no=3, epoch=1))
    answer = await heartbeat
    assert isinstance(answer, pb.WatchResponse)
    assert answer.echoed_ping_no == 3
    await client.verify(created.api_key)
    call.cancel()


def set_connections(url: str, *, allowed: bool) -> None:
    """Cuts a database off from everybody, or lets them in again."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url, dbname="postgres", autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}".encode())
        if not allowed:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
