"""Copies of chats at a model that is being evaluated: counted, and without any effect on the chats."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path

import pytest

from services.chassis.load.fair_budget import FairBudget
from services.chassis.load.prompt_memory import LEAST_PROMPT_BYTES, open_prompt_memory
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.router.routing import shadow
from services.router.routing.circuit_breaker import FAILURES_IN_A_ROW, BreakerState
from services.router.routing.class_route import ClassRoute, ShadowRoute, in_order
from services.router.routing.outcomes import CallRole, ModelOutcomes
from services.router.routing.shadow import MOST_AT_ONCE
from tests.services.router.harness import Router, as_json, running_router, target
from tests.support.upstreams.openai import USAGE, Reply, Upstream
from tests.support.waiting import until

OLD, NEW = target("old"), target("new")
TOOLS = as_json([{"type": "function", "function": {"name": "look_up"}}])
SECRET = "A question of mine"
MESSAGES = as_json([{"role": "user", "content": SECRET}])


def copied(percent: float = 100, calls_per_minute: int = 1_000) -> ClassRoute:
    return ClassRoute(in_order(OLD).tiers, shadow=ShadowRoute(NEW, percent, calls_per_minute))


@asynccontextmanager
async def shadowed(
    folder: Path,
    log: Log,
    route: ClassRoute,
    reply: Reply | None = None,
    dice: Callable[[], float] = lambda: 0.0,
    memory: FairBudget | None = None,
    registry: Registry | None = None,
) -> AsyncIterator[tuple[Router, Upstream, Upstream]]:
    """A router, the server of its model, and that of the model that gets copies."""
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(Upstream())
        new = await stack.enter_async_context(Upstream(reply))
        running = running_router(
            folder, log, {OLD: old, NEW: new}, route=route, shadow_dice=dice, prompt_memory=memory, registry=registry
        )
        yield await stack.enter_async_context(running), old, new


def outcomes_of(router: Router, role: CallRole) -> ModelOutcomes:
    outcomes = router.model_states.by_class["forte"].outcomes
    assert outcomes is not None
    [found] = [model for model in outcomes.models if model.role is role]
    return found


async def counted(router: Router, calls: int = 1) -> ModelOutcomes:
    """Returns the outcomes of the copies when so many have ended."""

    def have_ended() -> bool:
        outcomes = router.model_states.by_class["forte"].outcomes
        assert outcomes is not None
        return any(model.role is CallRole.SHADOW and model.calls >= calls for model in outcomes.models)

    await until(have_ended)
    return outcomes_of(router, CallRole.SHADOW)


@pytest.mark.parametrize("stream", [True, False])
async def test_copy_is_what_the_model_got_and_its_answer_is_only_counted(
    stream: bool, socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
    reply = Reply(contents=["Another answer"], tool_calls=[call], finish_reason="tool_calls")
    registry = Registry()
    async with shadowed(socket_folder, log, copied(), reply, registry=registry) as (router, old, new):
        answer = await router.ask(MESSAGES, tools_json=TOOLS, stream=stream, max_tokens=50)
        assert (answer.text, answer.tool_calls) == ("Hello, world!", [])
        copies = await counted(router)
        [served], [copy] = old.requests, new.requests
        for field in ("messages", "tools", "max_tokens"):
            assert copy.json[field] == served.json[field]
        assert (copies.answers, copies.failures, copies.errors) == (1, 0, {})
        assert (copies.prompt_tokens, copies.completion_tokens) == (USAGE["prompt_tokens"], USAGE["completion_tokens"])
        assert (copies.tool_calls, copies.valid_tool_calls, copies.finish_reasons) == (1, 1, {"tool_calls": 1})
        assert sum(copies.first_token_s.counts) == sum(copies.durations_s.counts) == 1
        labels = {
            "class": "forte",
            "role": "shadow",
            "gen_ai_provider_name": "new",
            "gen_ai_request_model": "new-model",
        }
        calls = registry.get_sample_value("legato_class_calls_total", {**labels, "outcome": "answered"})
        tokens = registry.get_sample_value("legato_class_tokens_total", {**labels, "gen_ai_token_type": "output"})
        assert (calls, tokens) == (1, USAGE["completion_tokens"])
        baseline = outcomes_of(router, CallRole.BASELINE)
        assert (baseline.model_name, baseline.calls, baseline.tool_calls) == ("old-model", 1, 0)
    for content in (SECRET, "Another", "world"):
        assert content not in log_text()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(status=500), "provider"),
        (Reply(status=429), "busy"),
        (Reply(status=400), "refused"),
        (Reply(cut_after=2), "cut"),
        (Reply(body="<html>"), "provider"),
    ],
    ids=["broken", "full", "refuses", "cut", "nonsense"],
)
async def test_failures_of_copies_are_counted_and_not_noticed(
    reply: Reply, error: str, socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    async with shadowed(socket_folder, log, copied(), reply) as (router, _old, _new):
        for number in range(1, FAILURES_IN_A_ROW + 2):
            assert (await router.ask()).text == "Hello, world!"
            assert (await counted(router, number)).errors == {error: number}
        baseline = outcomes_of(router, CallRole.BASELINE)
        assert (baseline.answers, baseline.errors) == (FAILURES_IN_A_ROW + 1, {})
    assert "target.failing" not in log_text()


async def test_health_of_a_model_that_serves_another_class_does_not_depend_on_copies(
    socket_folder: Path, log: Log
) -> None:
    async with shadowed(socket_folder, log, copied(), Reply(status=500)) as (router, _old, _new):
        states = router.model_states
        classes = {**states.routes.classes, "mezzo": in_order(NEW)}
        states.replace(type(states.routes)(states.routes.providers, classes))
        for number in range(1, FAILURES_IN_A_ROW + 1):
            await router.ask()
            await counted(router, number)
        [serving] = states.by_class["mezzo"].all
        assert (serving.breaker.state, serving.breaker.failures) == (BreakerState.CLOSED, 0)


async def test_silent_copies_delay_no_chat_are_few_and_end_with_the_router(socket_folder: Path, log: Log) -> None:
    for reply in (Reply(delay_s=600), Reply(stall_after=2)):
        async with shadowed(socket_folder, log, copied(), reply) as (router, _old, new):
            for _ in range(2 * MOST_AT_ONCE):
                assert (await router.ask()).text == "Hello, world!"
            await new.received(MOST_AT_ONCE)
            assert len(new.requests) == MOST_AT_ONCE
            copies = list(new.requests)
            await router.ask()
            assert not any(copy.ended.is_set() for copy in copies)
        for copy in copies:
            await copy.ended.wait()
            assert copy.aborted


async def test_copies_are_as_many_as_the_percentage_and_the_calls_of_a_minute_allow(
    socket_folder: Path, log: Log
) -> None:
    dice = cycle([0.0, 0.24, 0.26, 0.99]).__next__
    async with shadowed(socket_folder, log, copied(percent=25), dice=dice) as (router, _old, new):
        for _ in range(8):
            await router.ask()
        await counted(router, 4)
        assert len(new.requests) == 4
    async with shadowed(socket_folder, log, copied(calls_per_minute=3)) as (router, _old, new):
        for number in range(8):
            await router.ask()
            await counted(router, min(number + 1, 3))
        assert len(new.requests) == 3


async def test_large_prompts_are_not_copied_nor_any_while_memory_is_scarce(
    socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shadow, "MOST_PROMPT_BYTES", 30_000)
    large = as_json([{"role": "user", "content": "la " * 10_000}])
    memory = open_prompt_memory(LEAST_PROMPT_BYTES)
    async with shadowed(socket_folder, log, copied(), memory=memory) as (router, old, new):
        await router.ask(large)
        with memory.hold("acct_other", LEAST_PROMPT_BYTES * 2 // 3):
            await router.ask()
        await router.ask(MESSAGES)
        await counted(router)
        assert len(old.requests) == 3
        assert [request.json["messages"][-1]["content"] for request in new.requests] == [SECRET]
