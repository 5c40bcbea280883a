"""Maintenance mode, as an edge hears of it from auth."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.access.maintenance import MaintenanceMode
from edge.access.principals import Principals
from legato_protos.auth.v1 import auth_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import SystemClock
from tests.edge.auth_harness import WAIT_TIMEOUT_S, AuthHarness, bearer
from tests.support.fault_proxy import CUT

ON = pb.Maintenance(is_on=True, message="Back at noon.", retry_after_s=300)
OFF = pb.Maintenance()


def refusal(maintenance: MaintenanceMode) -> LegatoError | None:
    try:
        maintenance.raise_if_on()
    except LegatoError as error:
        return error
    return None


def test_clients_are_told_what_the_operator_says() -> None:
    maintenance = MaintenanceMode()
    assert refusal(maintenance) is None
    maintenance.update(pb.WatchResponse(epoch=2, maintenance=ON))
    error = refusal(maintenance)
    assert error is not None
    assert (error.reason, error.message, error.retry_after_s) == (Reason.MAINTENANCE, "Back at noon.", 300)
    assert (error.wire.http_status, error.wire.type) == (503, "api_error")
    maintenance.update(pb.WatchResponse(epoch=3, maintenance=OFF))
    assert refusal(maintenance) is None


def test_word_that_comes_late_changes_nothing() -> None:
    maintenance = MaintenanceMode()
    maintenance.update(pb.VerifyResponse(epoch=5, maintenance=ON))
    maintenance.update(pb.WatchResponse(epoch=4, maintenance=OFF))
    assert maintenance.is_on
    maintenance.update(pb.VerifyResponse(epoch=6, maintenance=OFF))
    maintenance.update(pb.WatchResponse(epoch=5, maintenance=ON))
    assert not maintenance.is_on


def test_auth_of_an_older_version_ends_no_maintenance() -> None:
    maintenance = MaintenanceMode()
    maintenance.update(pb.WatchResponse(epoch=5, maintenance=ON))
    maintenance.update(pb.WatchResponse(epoch=6))
    maintenance.update(pb.VerifyResponse(epoch=6))
    assert maintenance.is_on


@pytest.fixture
async def harness(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[AuthHarness]:
    """Runs in real time: the lease runs out, as it must for a change to hold in time on a slow machine too."""
    async with AuthHarness(socket_folder, tmp_path, SystemClock(), log, replicas=2).opened() as harness:
        yield harness


async def test_it_holds_when_the_call_returns_and_is_over_when_the_call_returns(harness: AuthHarness) -> None:
    created = await harness.new_key()
    await harness.principals.authenticate(bearer(created.api_key))
    await harness.leased()
    for is_on in (True, False, True):
        await harness.maintain(is_on=is_on)
        # The key is remembered, or it is asked for: both are as new as the lease.
        await harness.served(bearer(created.api_key))
        assert harness.principals.maintenance.is_on is is_on
    assert harness.registry.get_sample_value("legato_maintenance") == 1


async def test_edge_that_was_cut_off_hears_of_it_when_it_is_back(harness: AuthHarness) -> None:
    for line in harness.lines:
        line.set(CUT)
    await harness.maintain(is_on=True)
    assert not harness.principals.maintenance.is_on
    for line in harness.lines:
        line.heal()
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while not harness.principals.maintenance.is_on:
            await asyncio.sleep(0.01)


async def test_edge_that_starts_knows_with_the_first_key_that_it_lets_in(harness: AuthHarness, log: Log) -> None:
    created = await harness.new_key()
    await harness.maintain(is_on=True)
    # Its watch has not even begun.
    newcomer = Principals(harness.replicas, SystemClock(), log, Registry())
    await newcomer.authenticate(bearer(created.api_key))
    assert newcomer.maintenance.is_on


async def test_edge_that_starts_knows_when_it_has_heard_auth_for_the_first_time(harness: AuthHarness, log: Log) -> None:
    await harness.maintain(is_on=True)
    newcomer = Principals(harness.replicas, SystemClock(), log, Registry())
    await harness.principals.close()
    newcomer.start()
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        await newcomer.known()
    assert newcomer.maintenance.is_on
    await newcomer.close()
