"""Models and their state, and routes that are reloaded while chats run."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from click.testing import CliRunner

from cli.main import legato
from legato_protos.router.v1.router_pb2 import (
    BREAKER_STATE_CLOSED,
    BREAKER_STATE_OPEN,
    DiffRoutesRequest,
    ListTargetsRequest,
    ReloadRoutesRequest,
    ResumeCanaryRequest,
    Target,
)
from legato_protos.router.v1.router_pb2_grpc import RouteAdminServiceStub
from services.chassis.errors import Reason
from services.chassis.rpc.channel import from_rpc_error, open_channel
from services.chassis.telemetry.log import Log
from services.router.models.circuit_breaker import FAILURES_IN_A_ROW
from services.router.prompts.prompt import load_character
from services.router.trials.canary import FAILURES_IN_A_ROW as CANARY_FAILURES_IN_A_ROW
from tests.services.router.harness import Router, connected_router, read, refusal_of
from tests.support.forked.service_process import ServiceProcess
from tests.support.upstreams.openai import Reply, Upstream

if TYPE_CHECKING:
    from legato_protos.router.v1.router_pb2_grpc import RouteAdminServiceAsyncStub


PROVIDER = """
[providers.{name}]
kind = "openai"
base_url = "{base_url}"
zero_retention = true
[models.{name}]
provider = "{name}"
name = "{name}-model"
context_tokens = 10000
max_output_tokens = 1000
concurrency = 5
"""
CLASSES = """
[classes]
mezzo = {{ models = {models} }}
forte = {{ models = {models} }}
fortissimo = {{ models = {models} }}
"""


def write_routes(path: Path, **upstreams: Upstream) -> None:
    text = "".join(PROVIDER.format(name=name, base_url=upstream.base_url) for name, upstream in upstreams.items())
    path.write_text(text + CLASSES.format(models=list(upstreams)))


@dataclass
class RouterProcess:
    process: ServiceProcess
    routes: Path
    router: Router
    admin: "RouteAdminServiceAsyncStub"

    async def reload(self) -> list[Target]:
        return list((await self.admin.ReloadRoutes(ReloadRoutesRequest())).targets)

    async def hang_up(self) -> str:
        """Returns its answer."""
        self.process.send_signal(signal.SIGHUP)
        while True:
            line = await self.said()
            if '"routes.' in line:
                return line

    async def said(self) -> str:
        while (line := self.process.next_line()) is None:
            await asyncio.sleep(0.01)
        return line

    async def targets(self, class_id: str = "forte") -> list[Target]:
        targets = (await self.admin.ListTargets(ListTargetsRequest())).targets
        return [target for target in targets if target.class_id == class_id]


@asynccontextmanager
async def router_process(folder: Path, log: Log, **upstreams: Upstream) -> AsyncIterator[RouterProcess]:
    routes = folder / "routes.toml"
    write_routes(routes, **upstreams)
    process = ServiceProcess("services.router", {"LEGATO_DATA": str(folder), "LEGATO_ROUTES": str(routes)})
    address = f"unix:{folder}/run/router.sock"
    channel = open_channel(address)
    try:
        await asyncio.to_thread(process.wait_for, "service.started")
        async with connected_router(address, log) as router:
            yield RouterProcess(process, routes, router, RouteAdminServiceStub(channel))
    finally:
        await channel.close()
        process.close()


@pytest.fixture
async def other() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.mark.parametrize("by_signal", [True, False], ids=["signal", "rpc"])
async def test_new_chats_take_the_new_routes_and_running_ones_keep_theirs(
    by_signal: bool, socket_folder: Path, log: Log, upstream: Upstream, other: Upstream
) -> None:
    upstream.replies.append(Reply(contents=["Hello"], repeat=10, event_delay_s=0.1))
    async with router_process(socket_folder, log, old=upstream) as served:
        running = served.router.open()
        first = await running.receive()
        assert first is not None
        write_routes(served.routes, new=other)
        served.routes.write_text('character = "legato-small-1"' + served.routes.read_text())
        if by_signal:
            assert "routes.reloaded" in await served.hang_up()
        else:
            assert {target.model_name for target in await served.reload()} == {"new-model"}
        new = await served.router.ask()
        assert new.text == "Hello, world!"
        listed = await served.admin.ListTargets(ListTargetsRequest())
        assert new.responses[0].started.routes_version == listed.version
        assert first.started.routes_version not in ("", listed.version)
        assert (len(upstream.requests), len(other.requests)) == (1, 1)
        assert other.requests[0].json["messages"][0]["content"] == load_character("legato-small-1").text
        answer = await read(running)
        assert answer.finished.finish_reason == "stop"
        assert answer.text.endswith("HelloHello")


@pytest.mark.parametrize("by_signal", [True, False], ids=["signal", "rpc"])
async def test_file_with_a_mistake_changes_nothing_and_the_mistakes_are_told(
    by_signal: bool, socket_folder: Path, log: Log, upstream: Upstream
) -> None:
    async with router_process(socket_folder, log, old=upstream) as served:
        served.routes.write_text('colour = "red"')
        if by_signal:
            assert "colour: is not a known key" in await served.hang_up()
        else:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await served.reload()
            refusal = from_rpc_error(refused.value, "The router")
            assert refusal.reason is Reason.REQUEST_INVALID
            assert "colour: is not a known key" in refusal.message
            assert "classes.mezzo: is missing" in refusal.message
        assert (await served.router.ask()).text == "Hello, world!"


async def test_what_is_known_of_a_model_outlives_a_reload_that_leaves_it_as_it_was(
    socket_folder: Path, log: Log, upstream: Upstream, other: Upstream
) -> None:
    upstream.default_reply = Reply(status=500)
    async with router_process(socket_folder, log, old=upstream) as served:
        for _ in range(FAILURES_IN_A_ROW):
            await refusal_of(served.router)
        write_routes(served.routes, old=upstream, new=other)
        await served.reload()
        [old, new] = await served.targets()
        assert (old.model_name, old.breaker_state) == ("old-model", BREAKER_STATE_OPEN)
        assert old.attempts == old.failures == len(upstream.requests) >= FAILURES_IN_A_ROW
        assert old.recent_calls == old.recent_failures == old.attempts
        assert (new.HasField("recent_calls"), new.recent_calls) == (True, 0)
        assert (new.model_name, new.breaker_state, new.attempts) == ("new-model", BREAKER_STATE_CLOSED, 0)
        assert not old.HasField("median_latency_s")


async def test_targets_are_told_with_their_tiers_and_weights(
    socket_folder: Path, log: Log, upstream: Upstream, other: Upstream
) -> None:
    async with router_process(socket_folder, log, a=upstream, b=other) as served:
        assert [(target.tier, target.weight) for target in await served.targets()] == [(1, 1), (2, 1)]
        file = served.routes.read_text()
        served.routes.write_text(file.replace("models = ['a', 'b']", "tiers = [{ b = 70, a = 30 }]"))
        await served.reload()
        told = [(target.provider, target.tier, target.weight) for target in await served.targets()]
        assert told == [("b", 1, 70), ("a", 1, 30)]


async def test_canary_is_rolled_back_until_an_operator_resumes_it_or_changes_it(
    socket_folder: Path, log: Log, upstream: Upstream, other: Upstream
) -> None:
    other.default_reply = Reply(status=500)
    async with router_process(socket_folder, log, old=upstream, new=other) as served:

        async def put(percent: int) -> None:
            write_routes(served.routes, old=upstream, new=other)
            canary = f'["old"], canary = {{ model = "new", percent = {percent} }}'
            served.routes.write_text(served.routes.read_text().replace("['old', 'new']", canary))
            await served.reload()

        async def roll_back() -> None:
            for _ in range(CANARY_FAILURES_IN_A_ROW):
                assert not (await served.targets())[0].canary.is_rolled_back
                assert (await served.router.ask()).text == "Hello, world!"
            [canary, old] = await served.targets()
            assert (canary.provider, canary.tier, canary.canary.is_rolled_back) == ("new", 0, True)
            assert (old.provider, old.tier, old.HasField("canary")) == ("old", 1, False)
            assert (await served.router.ask()).responses[0].started.attempt == 1

        await put(99)
        with pytest.raises(grpc.aio.AioRpcError):
            await served.admin.ResumeCanary(ResumeCanaryRequest(class_id="pianissimo"))
        await roll_back()
        # The same canary stays rolled back.
        await put(99)
        assert (await served.targets())[0].canary.is_rolled_back
        # Its circuit breaker is open, too, so it is asked last until it answers again.
        other.default_reply = Reply()
        await served.admin.ResumeCanary(ResumeCanaryRequest(class_id="forte"))
        while len(other.requests) == CANARY_FAILURES_IN_A_ROW:
            assert (await served.router.ask()).text == "Hello, world!"
        other.default_reply = Reply(status=500)
        await roll_back()
        await put(100)
        assert not (await served.targets())[0].canary.is_rolled_back
        compared = await asyncio.to_thread(
            CliRunner().invoke, legato, ["routes", "compare", "old-model", "new-model", "--data", str(socket_folder)]
        )
        assert compared.exit_code == 0, compared.output
        assert compared.stdout.splitlines()[4].split() == ["errors", "-", "provider", "10"]


async def test_what_a_text_would_change_is_told_and_nothing_is_changed(
    socket_folder: Path, log: Log, upstream: Upstream
) -> None:
    async with router_process(socket_folder, log, old=upstream) as served:
        text = served.routes.read_text()
        wanted = text.replace("concurrency = 5", "concurrency = 6")
        told = await served.admin.DiffRoutes(DiffRoutesRequest(text=wanted))
        terms = "old-model of old, context_tokens 10000, max_output_tokens 1000, concurrency"
        assert list(told.changes)[:2] == [f"- forte: 1. {terms} 5", f"+ forte: 1. {terms} 6"]
        [unchanged, mistaken] = [
            await served.admin.DiffRoutes(DiffRoutesRequest(text=each)) for each in (text, f"colour = 1\n{text}")
        ]
        assert (list(unchanged.changes), list(unchanged.mistakes)) == ([], [])
        assert list(mistaken.mistakes) == ["colour: is not a known key"]
        assert [target.limit for target in await served.targets()] == [5]
        served.routes.write_text(wanted)
        assert (await served.admin.ReloadRoutes(ReloadRoutesRequest())).version == told.version != unchanged.version


async def test_targets_are_told_with_what_runs_and_what_may(socket_folder: Path, log: Log, upstream: Upstream) -> None:
    upstream.replies.append(Reply(stall_after=2))
    async with router_process(socket_folder, log, old=upstream) as served:
        running = served.router.open()
        assert await running.receive()
        for class_id in ("mezzo", "forte", "fortissimo"):
            [target] = await served.targets(class_id)
            assert (target.provider, target.running, target.limit) == ("old", 1, 5)
            assert target.median_latency_s > 0
        running.cancel()


async def test_chat_that_still_looks_for_a_model_may_take_one_that_is_gone_from_the_routes(
    socket_folder: Path, log: Log, upstream: Upstream, other: Upstream
) -> None:
    upstream.default_reply = Reply(status=500, delay_s=1)
    async with Upstream() as second, router_process(socket_folder, log, first=upstream, second=second) as served:
        looking = asyncio.create_task(served.router.ask())
        await upstream.received()
        write_routes(served.routes, new=other)
        await served.reload()
        assert (await looking).text == "Hello, world!"
        assert (len(second.requests), len(other.requests)) == (1, 0)


async def test_reloads_under_load_disturb_no_chat(
    socket_folder: Path, log: Log, upstream: Upstream, other: Upstream
) -> None:
    upstream.default_reply = other.default_reply = Reply(event_delay_s=0.01)
    async with router_process(socket_folder, log, old=upstream) as served:
        is_over = False

        async def chat() -> int:
            served_chats = 0
            while not is_over:
                assert (await served.router.ask()).text == "Hello, world!"
                served_chats += 1
            return served_chats

        chats = [asyncio.create_task(chat()) for _ in range(4)]
        for number in range(20):
            write_routes(served.routes, **({"old": upstream} if number % 2 else {"new": other}))
            await served.reload()
            await asyncio.sleep(0.05)
        is_over = True
        assert all(await asyncio.gather(*chats))
        assert upstream.requests
        assert other.requests
