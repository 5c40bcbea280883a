"""A second model that is asked while the first keeps a stream waiting."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.router.routing.class_route import in_order
from services.router.routing.hedging import HEDGED_SHARE, MOST_AT_ONCE, HedgeBudget
from services.router.routing.target import ProviderCost
from tests.services.router.harness import refusal_of, running_router, target
from tests.support.upstreams.openai import Reply, Upstream

CHATS_FOR_ONE = round(1 / HEDGED_SHARE)


def test_second_calls_are_a_twentieth_of_the_chats() -> None:
    budget, taken = HedgeBudget(), 0
    for _ in range(1000):
        budget.earn()
        taken += budget.take()
    assert taken == 50


def test_quiet_time_earns_few_calls_at_once() -> None:
    budget = HedgeBudget()
    for _ in range(1000):
        budget.earn()
    assert sum(budget.take() for _ in range(50)) == MOST_AT_ONCE


async def test_second_model_answers_in_place_of_a_silent_one_which_is_cancelled(socket_folder: Path, log: Log) -> None:
    registry = Registry()
    costly = replace(target("first"), cost=ProviderCost(10**9, 10**9, 10**9, 10**9, 10**9))
    async with Upstream() as first, Upstream(Reply(contents=["Second"])) as second:
        targets = {costly: first, target("second"): second}
        route = replace(in_order(*targets), first_token_s=0.2, hedge=True)
        async with running_router(socket_folder, log, targets, registry=registry, route=route) as router:
            for _ in range(CHATS_FOR_ONE - 1):
                assert (await router.ask()).text == "Hello, world!"
            first.default_reply = Reply(delay_s=60)
            answer = await router.ask()
            assert (answer.text, len(second.requests)) == ("Second", 1)
            await first.requests[-1].ended.wait()
            assert first.requests[-1].aborted
            prompt_tokens = answer.responses[-1].prompt_tokens

    def figure(name: str, provider: str, **labels: str) -> float | None:
        model = {"gen_ai_provider_name": provider, "gen_ai_request_model": f"{provider}-model"}
        return registry.get_sample_value(f"legato_upstream_{name}_total", {**model, **labels})

    assert (figure("hedges", "second", outcome="won"), figure("hedges", "first", outcome="lost")) == (1, 1)
    assert figure("hedge_cost_nanodollars", "first") == prompt_tokens * 1000


async def test_chats_that_have_earned_no_second_call_wait(socket_folder: Path, log: Log) -> None:
    async with Upstream(Reply(delay_s=0.5)) as first, Upstream() as second:
        targets = {target("first"): first, target("second"): second}
        route = replace(in_order(*targets), first_token_s=0.1, hedge=True)
        async with running_router(socket_folder, log, targets, route=route) as router:
            assert (await router.ask()).responses[0].started.attempt == 1
        assert not second.requests


@pytest.mark.parametrize("reply", [Reply(status=500), Reply(status=400)], ids=["fails", "refuses"])
async def test_first_model_that_fails_falls_back_as_ever(reply: Reply, socket_folder: Path, log: Log) -> None:
    async with Upstream(reply) as first, Upstream() as second:
        targets = {target("first"): first, target("second"): second}
        route = replace(in_order(*targets), first_token_s=5, hedge=True)
        async with running_router(socket_folder, log, targets, route=route) as router:
            assert (await router.ask()).responses[0].started.attempt == 2
            second.default_reply = Reply(status=400, body='{"error":{"code":"content_filter"}}')
            assert (await refusal_of(router)).reason is Reason.CONTENT_POLICY
