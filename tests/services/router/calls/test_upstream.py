"""One call to a model: the place it takes, the time it has, and what its end says of the model."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.router.models import circuit_breaker
from services.router.models.circuit_breaker import FAILURES_IN_A_ROW
from services.router.providers import base
from services.router.providers.base import Timeouts
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.calls.test_candidates import BROKEN, attempt_of, delayed
from tests.services.router.calls.test_fallback import STALLED, TWO, open_running, router_with_room_for_two
from tests.services.router.harness import read, refusal_of, running_router, target
from tests.support.upstreams.openai import Reply, Upstream


@pytest.mark.parametrize("leaves", [True, False], ids=["the client leaves", "the answer breaks"])
async def test_place_is_free_again_however_a_chat_ends(leaves: bool, socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, router_with_room_for_two(socket_folder, log, upstream) as router:
        for _ in range(3 * TWO):
            upstream.replies.append(STALLED if leaves else Reply(cut_after=2))
            call = router.open()
            assert await call.receive()
            if leaves:
                call.cancel()
                await upstream.requests[-1].ended.wait()
            else:
                with pytest.raises(LegatoError):
                    await read(call)
        assert (await router.ask()).text == "Hello, world!"


async def test_place_is_free_again_when_the_client_leaves_before_the_first_piece(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, router_with_room_for_two(socket_folder, log, upstream) as router:
        for number in range(3 * TWO):
            upstream.replies.append(Reply(delay_s=60))
            call = router.open()
            request = await upstream.received(number + 1)
            call.cancel()
            await request.ended.wait()
        assert (await router.ask()).text == "Hello, world!"


async def test_place_is_free_again_when_the_model_fails(socket_folder: Path, log: Log) -> None:
    async with Upstream() as upstream, router_with_room_for_two(socket_folder, log, upstream) as router:
        for _ in range(3 * TWO):
            upstream.replies.append(Reply(status=401))
            assert (await refusal_of(router)).reason is Reason.UPSTREAM_FAILED
        assert (await router.ask()).text == "Hello, world!"


async def test_place_is_free_again_where_a_mistake_of_ours_keeps_the_model_from_being_asked(
    socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(provider: OpenAIProvider, call: base.ProviderCall) -> AsyncGenerator[base.Piece, None]:
        raise KeyError("id")

    async with Upstream() as upstream, router_with_room_for_two(socket_folder, log, upstream) as router:
        with monkeypatch.context() as patched:
            patched.setattr(OpenAIProvider, "answer", fail)
            for _ in range(3 * TWO):
                assert (await refusal_of(router)).reason is Reason.INTERNAL
        assert (await router.ask()).text == "Hello, world!"


async def test_connection_that_is_refused_while_others_are_answered_means_full_and_else_away(
    socket_folder: Path, log: Log
) -> None:
    async with Upstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        running = await open_running(router, upstream)
        for site in list(upstream._runner.sites):  # type: ignore[union-attr]
            await site.stop()
        assert (await refusal_of(router)).reason is Reason.SATURATED
        running.cancel()
        await upstream.requests[0].ended.wait()
        async with asyncio.timeout(60):
            while (await refusal_of(router)).reason is not Reason.UPSTREAM_FAILED:
                await asyncio.sleep(0.02)


async def test_chat_that_tries_out_a_silent_model_moves_on_long_before_its_time_is_over(
    socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(circuit_breaker, "LEAST_TRIAL_TIMEOUT_S", 0.2)
    async with (
        Upstream() as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        assert await attempt_of(router) == 1
        first.replies.extend([BROKEN] * FAILURES_IN_A_ROW)
        first.default_reply = delayed(Reply(), 600)
        async with asyncio.timeout(60):
            while len(first.requests) < 1 + FAILURES_IN_A_ROW + 2:
                await attempt_of(router)
        assert all(request.aborted for request in first.requests[1 + FAILURES_IN_A_ROW :])


async def test_answer_that_takes_too_long_in_all_is_cut_and_not_tried_elsewhere(socket_folder: Path, log: Log) -> None:
    endless = Reply(contents=["Hello"], repeat=10_000, event_delay_s=0.05)
    async with Upstream(endless) as first, Upstream() as second:
        targets = {replace(target("first"), timeouts=Timeouts(total_s=1)): first, target("second"): second}
        async with running_router(socket_folder, log, targets) as router:
            call = router.open()
            assert await call.receive()
            with pytest.raises(LegatoError) as refusal:
                await read(call)
            assert refusal.value.reason is Reason.UPSTREAM_FAILED
            await first.requests[0].ended.wait()
            assert first.requests[0].aborted
        assert not second.requests


async def test_model_whose_answers_break_is_passed_over(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream(Reply(cut_after=2, event_delay_s=0.01)) as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        async with asyncio.timeout(60):
            while not second.requests:
                with contextlib.suppress(LegatoError):
                    await router.ask()
        assert first.requests
