"""Watch on a real server. Reads are real too, except where a test must decide when one ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
import pytest

from legato_protos.auth.v1 import auth_pb2 as pb
from services.auth.core.times import to_micros
from services.auth.keys.records import Changes
from services.auth.keys.rules.watch import Heartbeat, Ping, Watches
from services.auth.service import AuthService
from services.chassis.errors import LegatoError, Reason
from services.chassis.rpc.channel import from_rpc_error
from services.chassis.telemetry.log import Log
from tests.services.auth.client import AuthClient, ping
from tests.support.fakes import FakeClock


class SlowDatabase:
    """Each read ends when the test says so, with the epoch that was true when it began."""

    def __init__(self) -> None:
        self.epoch = 1
        self.begun = asyncio.Semaphore(0)
        self._may_end = asyncio.Semaphore(0)
        self.is_away = False

    async def read_changes(self, since_epoch: int) -> Changes:
        epoch = self.epoch
        self.begun.release()
        await self._may_end.acquire()
        if self.is_away:
            raise ConnectionError("a text that must not be logged")
        return Changes(epoch)

    async def wait_for_read(self) -> None:
        async with asyncio.timeout(60):
            await self.begun.acquire()

    def end_read(self) -> None:
        self._may_end.release()


class Pings:
    """Sends a caller's pings one by one, when the test says so."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Ping | None] = asyncio.Queue()

    def send(self, number: int, epoch: int = 1, used_key_ids: Sequence[str] = ()) -> None:
        self._queue.put_nowait(Ping(number, epoch, used_key_ids))

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[Ping]:
        while (sent := await self._queue.get()) is not None:
            yield sent


@pytest.fixture
async def slow() -> SlowDatabase:
    return SlowDatabase()


@pytest.fixture
async def pings() -> Pings:
    return Pings()


@pytest.fixture
async def used() -> list[str]:
    """The keys that callers have told of."""
    return []


@pytest.fixture
async def watches(slow: SlowDatabase, used: list[str], clock: FakeClock, log: Log) -> Watches:
    return Watches(slow.read_changes, used.extend, clock, log)


async def let_others_run() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_ping_that_comes_during_a_read_is_not_echoed_by_it(
    watches: Watches, slow: SlowDatabase, pings: Pings, clock: FakeClock
) -> None:
    heartbeats = watches.serve(aiter(pings))
    first = asyncio.ensure_future(anext(heartbeats))
    pings.send(1)
    await slow.wait_for_read()
    pings.send(2)
    await let_others_run()
    slow.epoch = 2
    slow.end_read()
    assert await first == Heartbeat(Changes(1), echoed_ping_no=1, read_at_us=to_micros(clock.now()))
    slow.end_read()
    assert await anext(heartbeats) == Heartbeat(Changes(2), echoed_ping_no=2, read_at_us=to_micros(clock.now()))
    await heartbeats.aclose()


async def test_time_is_told_as_it_was_when_the_ping_had_come_and_not_later(
    watches: Watches, slow: SlowDatabase, pings: Pings, clock: FakeClock
) -> None:
    """An earlier one would let callers take expired keys; a later one says less than it could."""
    heartbeats = watches.serve(aiter(pings))
    first = asyncio.ensure_future(anext(heartbeats))
    clock.advance(3600)
    pings.send(1)
    await slow.wait_for_read()
    expected_us = to_micros(clock.now())
    clock.advance(1)
    slow.end_read()
    assert (await first).read_at_us == expected_us
    await heartbeats.aclose()


async def test_no_ping_no_read(watches: Watches, slow: SlowDatabase, pings: Pings) -> None:
    heartbeats = watches.serve(aiter(pings))
    waiting = asyncio.ensure_future(anext(heartbeats))
    slow.end_read()
    await let_others_run()
    assert slow.begun.locked()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_pings_that_gathered_are_answered_by_one_read(watches: Watches, slow: SlowDatabase, pings: Pings) -> None:
    heartbeats = watches.serve(aiter(pings))
    first = asyncio.ensure_future(anext(heartbeats))
    pings.send(1)
    await slow.wait_for_read()
    for number in (2, 3, 4):
        pings.send(number)
    await let_others_run()
    slow.end_read()
    await first
    slow.end_read()
    assert (await anext(heartbeats)).echoed_ping_no == 4
    pings.end()
    with pytest.raises(StopAsyncIteration):
        await anext(heartbeats)


async def test_failed_read_gives_no_heartbeat_and_is_logged_once(
    watches: Watches, slow: SlowDatabase, pings: Pings, log_text: Callable[[], str]
) -> None:
    heartbeats = watches.serve(aiter(pings))
    waiting = asyncio.ensure_future(anext(heartbeats))
    slow.is_away = True
    for number in (1, 2):
        pings.send(number)
        await slow.wait_for_read()
        slow.end_read()
        await let_others_run()
    assert not waiting.done()
    could_read = watches.can_read
    slow.is_away = False
    pings.send(3)
    slow.end_read()
    assert (await waiting).echoed_ping_no == 3
    assert (could_read, watches.can_read) == (False, True)
    assert log_text().count("watch.read_failed") == 1
    assert log_text().count("watch.read_again") == 1
    assert "must not be logged" not in log_text()
    await heartbeats.aclose()


async def test_database_that_is_behind_the_caller_gives_no_heartbeat(
    watches: Watches, slow: SlowDatabase, pings: Pings, log_text: Callable[[], str]
) -> None:
    heartbeats = watches.serve(aiter(pings))
    waiting = asyncio.ensure_future(anext(heartbeats))
    pings.send(1, epoch=9)
    await slow.wait_for_read()
    slow.end_read()
    await let_others_run()
    assert not waiting.done()
    assert "watch.database_is_behind" in log_text()
    slow.epoch = 9
    pings.send(2, epoch=9)
    slow.end_read()
    assert (await waiting).echoed_ping_no == 2
    await heartbeats.aclose()


async def test_used_keys_are_heard_of_every_ping_though_only_the_newest_is_answered(
    watches: Watches, slow: SlowDatabase, pings: Pings, used: list[str]
) -> None:
    heartbeats = watches.serve(aiter(pings))
    first = asyncio.ensure_future(anext(heartbeats))
    pings.send(1)
    await slow.wait_for_read()
    pings.send(2, used_key_ids=["key_a"])
    pings.send(3, used_key_ids=["key_b"])
    await let_others_run()
    assert used == ["key_a", "key_b"]
    slow.end_read()
    await first
    slow.end_read()
    assert (await anext(heartbeats)).echoed_ping_no == 3
    await heartbeats.aclose()


async def test_caller_that_falls_silent_is_let_go(
    slow: SlowDatabase, pings: Pings, used: list[str], clock: FakeClock, log: Log
) -> None:
    watches = Watches(slow.read_changes, used.extend, clock, log, silence_s=0.01)
    assert [heartbeat async for heartbeat in watches.serve(aiter(pings))] == []
    assert watches.count == 0


async def test_callers_are_let_go_when_the_service_ends(watches: Watches, pings: Pings) -> None:
    waiting = asyncio.ensure_future(anext(watches.serve(aiter(pings))))
    await let_others_run()
    watches.close()
    with pytest.raises(StopAsyncIteration):
        await waiting
    with pytest.raises(LegatoError) as caught:
        await anext(watches.serve(aiter(pings)))
    assert caught.value.reason is Reason.UNAVAILABLE


def heartbeat_at(clock: FakeClock, **fields: Any) -> pb.WatchResponse:
    heartbeat = pb.WatchResponse(maintenance=pb.Maintenance(), **fields)
    heartbeat.read_time.FromMicroseconds(to_micros(clock.now()))
    return heartbeat


async def test_heartbeat_echoes_the_ping_with_the_epoch_of_the_database_and_the_time_of_auth(
    client: AuthClient, clock: FakeClock
) -> None:
    call = client.watch()
    assert await ping(call, 41, epoch=1) == heartbeat_at(clock, epoch=1, echoed_ping_no=41)
    clock.advance(7.25)
    assert await ping(call, 42, epoch=1) == heartbeat_at(clock, epoch=1, echoed_ping_no=42)
    call.cancel()


async def test_revoked_key_is_in_the_next_heartbeat(client: AuthClient, clock: FakeClock) -> None:
    account = await client.create_account()
    key = (await client.create_key(account.account_id)).key
    call = client.watch()
    await ping(call, 1, epoch=1)
    await client.revoke_key(key.key_id)
    assert await ping(call, 2, epoch=1) == heartbeat_at(
        clock, epoch=2, echoed_ping_no=2, changed_key_ids=[key.key_id], refused_key_ids=[key.key_id]
    )
    # Until the caller says that it acted on the change, it is told again.
    assert (await ping(call, 3, epoch=1)).changed_key_ids == [key.key_id]
    assert (await ping(call, 4, epoch=2)).changed_key_ids == []
    call.cancel()


async def test_changed_account_lists_its_keys_in_the_next_heartbeat(client: AuthClient) -> None:
    account = await client.create_account()
    key_ids = {(await client.create_key(account.account_id)).key.key_id for _ in range(2)}
    call = client.watch()
    await client.update_account(pb.UpdateAccountRequest(account_id=account.account_id, preferred_class="mezzo"))
    heartbeat = await ping(call, 1, epoch=1)
    assert (heartbeat.epoch, set(heartbeat.changed_key_ids)) == (2, key_ids)
    call.cancel()


async def test_keys_of_a_suspended_account_are_in_the_next_heartbeat_as_refused(client: AuthClient) -> None:
    account = await client.create_account()
    key_ids = {(await client.create_key(account.account_id)).key.key_id for _ in range(2)}
    call = client.watch()
    await client.suspend(account.account_id)
    heartbeat = await ping(call, 1, epoch=1)
    assert (set(heartbeat.changed_key_ids), set(heartbeat.refused_key_ids)) == (key_ids, key_ids)
    await client.resume(account.account_id)
    heartbeat = await ping(call, 2, epoch=heartbeat.epoch)
    assert (set(heartbeat.changed_key_ids), set(heartbeat.refused_key_ids)) == (key_ids, set())
    call.cancel()


async def test_caller_that_is_older_than_the_history_is_told_to_forget_all(
    client: AuthClient, clock: FakeClock
) -> None:
    account = await client.create_account()
    key = (await client.create_key(account.account_id)).key
    call = client.watch()
    await client.revoke_key(key.key_id)
    assert await ping(call, 1, epoch=0) == heartbeat_at(clock, epoch=2, echoed_ping_no=1, forget_all=True)
    call.cancel()


async def test_caller_that_ends_its_side_gets_its_last_answer_and_a_clean_end(
    client: AuthClient, auth: AuthService
) -> None:
    call = client.watch()
    assert (await ping(call, 1, epoch=1)).echoed_ping_no == 1
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    assert auth.watches.count == 0


async def test_cancelled_watch_leaves_nothing_behind(
    client: AuthClient, auth: AuthService, log_text: Callable[[], str]
) -> None:
    calls = [client.watch() for _ in range(3)]
    for call in calls:
        await ping(call, 1, epoch=1)
    assert auth.watches.count == 3
    for call in calls:
        call.cancel()
    async with asyncio.timeout(60):
        while auth.watches.count:
            await asyncio.sleep(0.01)
    assert "rpc.failed" not in log_text()


async def test_watch_of_a_service_that_ends_is_refused_as_unavailable(client: AuthClient, auth: AuthService) -> None:
    auth.watches.close()
    call = client.watch()
    # Without a ping: that would meet a call which is over already, or not, as it happens.
    with pytest.raises(grpc.RpcError) as caught:
        await call.read()
    assert from_rpc_error(caught.value, "auth").reason is Reason.UNAVAILABLE
