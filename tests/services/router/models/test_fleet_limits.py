"""Shares of models' limits, from a metering over a socket, and a model's server that counts what runs."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.admission import Gate, Permit
from services.chassis.rpc.replica_channel import ReplicaChannel
from services.chassis.rpc.server import RpcServer
from services.chassis.telemetry.log import Log
from services.chassis.timing.deadlines import SystemClock
from services.metering.limits.model_shares import LEARNING_S, LocalModelShares
from services.metering.limits.servicers.model_shares import ModelShareServicer
from services.router.models.fleet_limits import FIRST_ANSWER_S, FleetLimits
from services.router.models.share import RouterShare
from tests.services.router.harness import running_router, target
from tests.support.fakes import FakeClock
from tests.support.upstreams.openai import Reply, Upstream

LIMIT = 4
NAME = "host/model"


@pytest.fixture
def store() -> LocalModelShares:
    """One that was started long ago."""
    clock = FakeClock()
    store = LocalModelShares(clock)
    clock.advance(LEARNING_S)
    return store


@asynccontextmanager
async def metering(store: LocalModelShares, folder: Path, log: Log) -> AsyncIterator[None]:
    server = RpcServer(f"unix:{folder}/metering.sock", [ModelShareServicer(store)], log)
    await server.start()
    yield
    await server.stop(0)


@asynccontextmanager
async def fleet_limits(folder: Path, log: Log, clock: Any = None) -> AsyncIterator[FleetLimits]:
    channel = ReplicaChannel("Metering", "metering", f"unix:{folder}/metering.sock", None, log)
    limits = FleetLimits(clock or SystemClock(), log, channel)
    running = asyncio.create_task(limits.run())
    yield limits
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await limits.close()


class Model:
    """A model as one router sees it."""

    def __init__(self, limits: FleetLimits, limit: int = LIMIT) -> None:
        self.gate = Gate("The model", SystemClock(), most=limit)
        self.share: RouterShare = limits.share_of(NAME, limit, self.gate)
        self.gate.limit_places(lambda: self.share.places_of(self.gate))
        self.running: list[Permit] = []

    async def begin_chat(self) -> bool:
        def has_room() -> bool:
            return self.gate.has_room_for("key")

        if not has_room() and self.share.may_grow:
            await self.share.wait(has_room)
        with contextlib.suppress(LegatoError):
            self.running.append(self.gate.acquire("key"))
            self.share.record(self.gate)
            return True
        self.share.record(self.gate, refused=1)
        return False

    async def begin_until(self, is_enough: Callable[[], bool]) -> None:
        """Lets chats come until there are enough, each of which tries again."""
        async with asyncio.timeout(60):
            while not is_enough():
                if not await self.begin_chat():
                    await asyncio.sleep(0.05)

    def end_chats(self) -> None:
        for permit in self.running:
            permit.release()
        self.running.clear()


async def test_routers_share_a_limit_and_what_one_gives_up_the_other_gets(
    store: LocalModelShares, socket_folder: Path, log: Log
) -> None:
    async with metering(store, socket_folder, log), fleet_limits(socket_folder, log) as second:
        other = Model(second)
        async with fleet_limits(socket_folder, log) as first:
            model = Model(first)
            began = await asyncio.gather(*(each.begin_chat() for each in [model, other] * LIMIT))
            assert sum(began) == LIMIT == len(model.running) + len(other.running)
            other.end_chats()
            await model.begin_until(lambda: len(model.running) == LIMIT)
            model.end_chats()
        # It has ended, and so has its lease.
        await other.begin_until(lambda: len(other.running) == LIMIT)


async def test_router_that_was_idle_when_all_was_in_use_asks_again(
    store: LocalModelShares, socket_folder: Path, log: Log
) -> None:
    async with (
        metering(store, socket_folder, log),
        fleet_limits(socket_folder, log) as first,
        fleet_limits(socket_folder, log) as second,
    ):
        # It has a lower limit already, of which the other's chats are more.
        model, other = Model(first, limit=1), Model(second)
        await other.begin_until(lambda: len(other.running) > 1)
        assert not await model.begin_chat()
        async with asyncio.timeout(60):
            while model.share.claim() is not None:
                await asyncio.sleep(0.05)
        other.end_chats()
        await model.begin_until(lambda: len(model.running) == 1)


async def test_restart_of_metering_which_forgets_all_lets_no_more_chats_begin(
    store: LocalModelShares, socket_folder: Path, log: Log
) -> None:
    async with fleet_limits(socket_folder, log) as first, fleet_limits(socket_folder, log) as second:
        model, other = Model(first), Model(second)
        async with metering(store, socket_folder, log):
            assert [await model.begin_chat() for _ in range(LIMIT)] == [True] * LIMIT
        model.running.pop().release()
        assert await model.begin_chat()
        clock = FakeClock()
        async with metering(LocalModelShares(clock), socket_folder, log):
            assert not await other.begin_chat()
            assert len(model.running) == LIMIT
            clock.advance(LEARNING_S)
            model.end_chats()
            await other.begin_until(lambda: len(other.running) == LIMIT)


async def test_router_without_contact_begins_no_chat_once_its_lease_has_lapsed(
    store: LocalModelShares, socket_folder: Path, log: Log
) -> None:
    clock = FakeClock()
    async with fleet_limits(socket_folder, log, clock) as limits:
        model = Model(limits)
        async with metering(store, socket_folder, log):
            assert [await model.begin_chat() for _ in range(2)] == [True] * 2
        assert model.share.places >= 2
        clock.advance(5)
        assert (model.share.places, len(model.running)) == (0, 2)
        assert not model.gate.has_room_for("key")
        async with metering(store, socket_folder, log):
            assert await model.begin_chat()


async def test_router_that_never_reached_metering_counts_for_itself_and_says_so(
    socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    clock = FakeClock()
    async with fleet_limits(socket_folder, log, clock) as limits:
        model = Model(limits)
        clock.advance(FIRST_ANSWER_S)
        await model.begin_until(lambda: len(model.running) == LIMIT)
        assert not await model.begin_chat()
    assert log_text().count("limits.not_shared") == 1


async def test_router_beside_an_older_metering_counts_for_itself(
    socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    server = RpcServer(f"unix:{socket_folder}/metering.sock", [], log)
    await server.start()
    clock = FakeClock()
    async with fleet_limits(socket_folder, log, clock) as limits:
        model = Model(limits)
        clock.advance(FIRST_ANSWER_S)
        await model.begin_until(lambda: len(model.running) == LIMIT)
    await server.stop(0)
    assert log_text().count("limits.not_shared") == 1


async def test_models_without_a_limit_call_nothing(socket_folder: Path, log: Log) -> None:
    async with fleet_limits(socket_folder, log) as limits:
        await asyncio.sleep(0)
        assert limits._metering is not None
        assert limits._metering.replicas.in_order() == []


async def test_chats_of_two_routers_never_exceed_the_limit_at_the_models_server(
    store: LocalModelShares, socket_folder: Path, log: Log, upstream: Upstream
) -> None:
    upstream.default_reply = Reply(contents=["It", " rains"], event_delay_s=0.02)
    model = replace(target("host"), concurrency=LIMIT)
    (socket_folder / "2").mkdir()
    async with (
        metering(store, socket_folder, log),
        fleet_limits(socket_folder, log) as first,
        fleet_limits(socket_folder, log) as second,
        running_router(socket_folder, log, {model: upstream}, limits=first) as one,
        running_router(socket_folder / "2", log, {model: upstream}, limits=second) as two,
    ):
        outcomes: Counter[Reason | None] = Counter()

        async def client(number: int) -> None:
            while outcomes[None] < 100:
                try:
                    await (one, two)[number % 2].ask(key_id=f"key-{number}", stream=number % 3 != 0)
                    outcomes[None] += 1
                except LegatoError as error:
                    outcomes[error.reason] += 1
                    await asyncio.sleep(0.02)

        await asyncio.gather(*(client(number) for number in range(4 * LIMIT)))
    assert set(outcomes) <= {None, Reason.SATURATED}
    assert upstream.most_running == LIMIT
