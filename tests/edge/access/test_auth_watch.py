"""The watch on a line that fails; what it makes of heartbeats is in test_principals.py and test_auth.py."""

import asyncio
from pathlib import Path

from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.auth_harness import WAIT_TIMEOUT_S, AuthHarness, bearer
from tests.support.fault_proxy import STALL


async def test_use_that_was_told_on_a_line_that_swallowed_it_is_told_again(
    socket_folder: Path, tmp_path: Path, log: Log
) -> None:
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log).opened() as harness:
        key = (await harness.new_key()).key
        await harness.leased()
        harness.lines[0].set(STALL)
        harness.principals._principal_cache.add_used_keys([key.key_id])
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while harness.principals._principal_cache._used_key_ids:
                await asyncio.sleep(0.01)
        harness.lines[0].heal()
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while not (await harness.key(key)).HasField("last_use_time"):
                await asyncio.sleep(0.05)


async def test_only_one_watch_is_kept_on_one_replica(socket_folder: Path, tmp_path: Path, log: Log) -> None:
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log).opened() as harness:
        await harness.leased()
        assert harness.auth.watches.count == 1


async def test_two_replicas_of_three_are_watched_and_the_third_takes_the_place_of_one_that_dies(
    socket_folder: Path, tmp_path: Path, log: Log
) -> None:
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log, replicas=3).opened() as harness:

        async def watched(count: int) -> set[int]:
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                while sum(replica.usable for replica in harness.replicas.in_order()) != count:
                    await asyncio.sleep(0.01)
            return {number for number, line in enumerate(harness.lines) if line.connections}

        before = await watched(2)
        assert len(before) == 2
        await harness.shut(min(before))
        third = ({0, 1, 2} - before).pop()
        async with asyncio.timeout(WAIT_TIMEOUT_S):
            while not harness.lines[third].connections:
                await asyncio.sleep(0.01)
        await watched(2)


async def test_heartbeat_that_comes_late_ends_no_answer_of_a_key_that_is_good_again(
    socket_folder: Path, tmp_path: Path, log: Log
) -> None:
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log).opened() as harness:
        created = await harness.new_key()
        await harness.leased()
        await harness.suspend(created.key.account_id)
        await harness.heard_of(2)
        late = pb.WatchResponse(epoch=2, changed_key_ids=[created.key.key_id], refused_key_ids=[created.key.key_id])
        await harness.resume(created.key.account_id)
        await harness.heard_of(3)
        principal = await harness.principals.authenticate(bearer(created.api_key))
        with harness.principals.track_key(principal) as running_key:
            harness.principals._watch._apply(late)
            running_key.raise_if_refused()
