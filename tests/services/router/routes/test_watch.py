"""Routes that a fleet of routers takes over by itself: the same version everywhere, or none."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

import services.metering
from services.chassis.database.database import Database
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.chassis.timing.deadlines import SystemClock
from services.metering.credit.servicers.staged_files import StagedFileServicer
from services.router.metrics import show_route_file
from services.router.models.states import ModelStates, OpenProvider
from services.router.routes.reload import Reload
from services.router.routes.routes import load_routes
from services.router.routes.target import DEFAULT_TIMEOUTS
from services.router.routes.watch import FleetReports, RouteWatch
from tests.services.router.routes.test_reload import NeverWarm
from tests.services.router.routes.test_routes import GOOD
from tests.support.servers.migrated import migrated_sqlite

OLD, NEW = GOOD, GOOD.replace("= 500", "= 600")
MIGRATIONS = Path(services.metering.__file__).parent / "migrations"


class WatchingRouter:
    """A router with a file of its own, as in a pod."""

    def __init__(self, path: Path, metering: ReplicaChannel, log: Log) -> None:
        self.path = path
        path.write_text(OLD)
        routes = load_routes(path)
        self.model_states = ModelStates(routes, cast(OpenProvider, lambda *_: NeverWarm()), SystemClock(), log)
        reload = Reload(path, DEFAULT_TIMEOUTS, self.model_states, log)
        self.is_leaving = False
        self.watch = RouteWatch(
            reload, self.model_states, log, FleetReports(metering), is_leaving=lambda: self.is_leaving
        )

    @property
    def version(self) -> str:
        return self.model_states.routes.version


@pytest.fixture
async def metering(socket_folder: Path, tmp_path: Path, log: Log) -> AsyncIterator[ReplicaChannel]:
    database = Database(migrated_sqlite(tmp_path / "metering.db", "metering", MIGRATIONS), "metering")
    address = f"unix:{socket_folder}/metering.sock"
    server = RpcServer(address, [StagedFileServicer(database)], log)
    await server.start()
    channel = ReplicaChannel("Metering", "metering", address, None, log)
    await channel.start()
    yield channel
    await channel.close()
    await server.stop(0)
    database.close()


@pytest.fixture
async def routers(
    metering: ReplicaChannel, tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[list[WatchingRouter]]:
    monkeypatch.setenv("HOST_KEY", "secret")
    routers = [WatchingRouter(tmp_path / f"routes-{number}.toml", metering, log) for number in (1, 2)]
    yield routers
    for router in routers:
        await router.model_states.aclose()


async def look(routers: list[WatchingRouter], times: int = 2) -> set[str]:
    for _ in range(times):
        for router in routers:
            await router.watch.look()
    return {router.version for router in routers}


async def test_changed_file_is_taken_over_once_every_router_has_read_it(routers: list[WatchingRouter]) -> None:
    [old] = await look(routers)
    routers[0].path.write_text(NEW)
    # It reaches one pod before the other.
    assert await look(routers) == {old}
    routers[1].path.write_text(NEW)
    [new] = await look(routers)
    assert new == load_routes(routers[0].path).version != old


async def test_file_with_a_mistake_on_one_router_is_taken_over_by_none(
    routers: list[WatchingRouter], log_text: Callable[[], str]
) -> None:
    [old] = await look(routers)
    registry = Registry()
    show_route_file(routers[1].watch, registry)
    routers[0].path.write_text(NEW)
    routers[1].path.write_text(f"{NEW}\n[colours]\n")
    assert await look(routers) == {old}
    # Not at each look.
    assert log_text().count('"routes.refused"') == 1
    assert registry.get_sample_value("legato_routes_file_info", {"version": ""}) == 1
    routers[1].path.write_text(NEW)
    assert old not in await look(routers)


async def test_router_that_is_leaving_keeps_no_other_from_new_routes(routers: list[WatchingRouter]) -> None:
    staying, leaving = routers
    leaving.is_leaving = True
    staying.path.write_text(NEW)
    before = staying.version
    await look(routers)
    assert (staying.version != before, leaving.version) == (True, before)


async def test_nothing_changes_while_metering_is_away_or_without_a_fleet(
    routers: list[WatchingRouter], socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.router.routes.watch.REPORT_WITHIN_S", 0.05)
    away = ReplicaChannel("Metering", "metering", f"unix:{socket_folder}/away.sock", None, log)
    await away.start()
    router, before = routers[0], routers[0].version
    router.path.write_text(NEW)
    reload = Reload(router.path, DEFAULT_TIMEOUTS, router.model_states, log)
    for fleet in (FleetReports(away), None):
        watch = RouteWatch(reload, router.model_states, log, fleet)
        await watch.look()
        # It is told, and an operator may reload it.
        assert (router.version, watch.file_version) == (before, load_routes(router.path).version)
    await away.close()
