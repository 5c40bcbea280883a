"""Two replicas of auth, each on a line of its own that a test can break."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from edge.access.principal_cache import LEASE_S
from edge.backends.auth import AuthClient
from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from tests.edge.auth_harness import WAIT_TIMEOUT_S, AuthHarness, bearer
from tests.support.fault_proxy import CUT, STALL, Delay, Fault
from tests.support.waiting import until


@pytest.fixture
async def harness(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[AuthHarness]:
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log, replicas=2).opened() as harness:
        yield harness


async def watched(harness: AuthHarness, count: int) -> None:
    """Waits until so many replicas answer pings."""
    await until(lambda: sum(replica.usable for replica in harness.replicas.in_order()) == count, WAIT_TIMEOUT_S)


async def lease_over(harness: AuthHarness) -> None:
    await until(lambda: harness.principals._principal_cache.lag_s >= LEASE_S, WAIT_TIMEOUT_S)


async def still_heard(harness: AuthHarness) -> None:
    """A ping that was sent after this moment is answered."""
    now_s = SystemClock().elapsed_s()
    await until(lambda: SystemClock().elapsed_s() - harness.principals._principal_cache.lag_s > now_s, WAIT_TIMEOUT_S)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("fault", [CUT, STALL, Delay(2.0)], ids=["cut", "stalled", "slow"])
async def test_one_line_that_fails_is_not_noticed_by_clients(harness: AuthHarness, fault: Fault, number: int) -> None:
    cached, fresh = await harness.new_key(), await harness.new_key()
    await watched(harness, 2)
    await harness.principals.authenticate(bearer(cached.api_key))
    harness.lines[number].set(fault)
    # Whether it is remembered or has to be asked for, and by whichever replica.
    assert (await harness.principals.authenticate(bearer(fresh.api_key))).key_id == fresh.key.key_id
    await still_heard(harness)
    assert (await harness.principals.authenticate(bearer(cached.api_key))).key_id == cached.key.key_id
    harness.lines[number].heal()
    await watched(harness, 2)


async def test_replica_that_dies_is_not_noticed_by_clients_and_is_watched_again_when_it_is_back(
    harness: AuthHarness,
) -> None:
    created = await harness.new_key()
    await watched(harness, 2)
    await harness.shut(0)
    assert (await harness.principals.authenticate(bearer(created.api_key))).key_id == created.key.key_id
    await still_heard(harness)
    await harness.open(0)
    await watched(harness, 2)


async def test_answer_of_a_replica_that_has_it_is_not_held_up_by_one_that_has_none(harness: AuthHarness) -> None:
    created = await harness.new_key()
    await watched(harness, 2)
    harness.lines[0].set(STALL)
    answers = [await AuthClient(harness.replicas).verify(created.api_key) for _ in range(3)]
    assert {answer.principal.key_id for answer in answers} == {created.key.key_id}


async def test_refusal_of_one_replica_is_an_answer(harness: AuthHarness) -> None:
    harness.lines[0].set(STALL)
    with pytest.raises(LegatoError) as caught:
        await AuthClient(harness.replicas).verify("sk-legato-nonsense")
    assert caught.value.reason is Reason.KEY_INVALID


@pytest.mark.parametrize("fault", [CUT, STALL, Delay(2.0)], ids=["cut", "stalled", "slow"])
async def test_edge_that_reaches_no_auth_lets_no_client_in_until_it_does(harness: AuthHarness, fault: Fault) -> None:
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await watched(harness, 2)
    for line in harness.lines:
        line.set(fault)
    await lease_over(harness)
    assert (await harness.refusal_of(bearer(created.api_key))).reason is Reason.UNAVAILABLE
    for line in harness.lines:
        line.heal()
    # Connections that were stalled are never of use again; the edge must find that out by itself.
    await harness.leased()
    assert (await harness.principals.authenticate(bearer(created.api_key))).key_id == created.key.key_id


async def test_heartbeats_that_were_under_way_for_longer_than_a_lease_give_none(
    harness: AuthHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await watched(harness, 2)
    for line in harness.lines:
        line.set(Delay(LEASE_S), "down")
    await lease_over(harness)
    # They come five times a second, and each is too old.
    heartbeats, take = 0, harness.principals._principal_cache.apply_heartbeat

    def count(heartbeat: pb.WatchResponse, sent_at_s: float | None) -> None:
        nonlocal heartbeats
        heartbeats += 1
        take(heartbeat, sent_at_s)

    monkeypatch.setattr(harness.principals._principal_cache, "apply_heartbeat", count)
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while heartbeats < 5:
            assert harness.principals._principal_cache.lag_s >= LEASE_S
            await asyncio.sleep(0.01)
    assert (await harness.refusal_of(bearer(created.api_key))).reason is Reason.UNAVAILABLE


async def test_revocation_holds_though_both_lines_are_stalled(harness: AuthHarness) -> None:
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await watched(harness, 2)
    for line in harness.lines:
        line.set(STALL)
    await harness.revoke(created.key)
    assert (await harness.refusal_of(bearer(created.api_key))).reason is Reason.UNAVAILABLE


async def test_broken_lines_are_nothing_to_fill_a_log_with(harness: AuthHarness, log_text: Callable[[], str]) -> None:
    await watched(harness, 2)
    for line in harness.lines:
        line.set(CUT)
    await watched(harness, 0)
    for line in harness.lines:
        line.heal()
    await harness.leased()
    assert '"level":"error"' not in log_text()
