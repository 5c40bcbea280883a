from datetime import date
from pathlib import Path

import pytest

from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.router.metrics import show_model_states
from services.router.models.circuit_breaker import FAILURES_IN_A_ROW
from tests.services.router.harness import running_router, target
from tests.services.router.models.test_states import Played, settled
from tests.support.fakes import FakeClock
from tests.support.upstreams.openai import USAGE, Reply, Upstream

FIRST = {"gen_ai_provider_name": "first", "gen_ai_request_model": "first-model"}
SECOND = {"gen_ai_provider_name": "second", "gen_ai_request_model": "second-model"}


@pytest.fixture
def registry() -> Registry:
    return Registry()


async def test_models_that_fail_and_those_that_answer_are_told_apart(
    socket_folder: Path, log: Log, registry: Registry
) -> None:
    async with (
        Upstream(Reply(status=500)) as first,
        Upstream() as second,
        running_router(
            socket_folder, log, {target("first"): first, target("second"): second}, registry=registry
        ) as router,
    ):

        def attempts(model: dict[str, str], outcome: str) -> float | None:
            return registry.get_sample_value("legato_upstream_attempts_total", {**model, "outcome": outcome})

        assert registry.get_sample_value("legato_breaker_state", FIRST) == 0
        for _ in range(FAILURES_IN_A_ROW):
            await router.ask()
        assert registry.get_sample_value("legato_breaker_state", FIRST) == 2
        assert registry.get_sample_value("legato_breaker_state", SECOND) == 0
        assert (attempts(FIRST, "failed"), attempts(FIRST, "answered")) == (FAILURES_IN_A_ROW, 0)
        assert (attempts(SECOND, "failed"), attempts(SECOND, "answered")) == (0, FAILURES_IN_A_ROW)
        second.default_reply = Reply(status=429)
        with pytest.raises(Exception, match="saturated"):
            await router.ask()
        assert attempts(SECOND, "declined") == 1
        begun = "gen_ai_client_operation_time_to_first_chunk_seconds_count"
        assert registry.get_sample_value(begun, {**SECOND, "gen_ai_operation_name": "chat"}) == FAILURES_IN_A_ROW


async def test_answers_are_told_with_their_length_and_their_tokens(
    socket_folder: Path, log: Log, registry: Registry
) -> None:
    async with (
        Upstream() as upstream,
        running_router(socket_folder, log, {target("first"): upstream}, registry=registry) as router,
    ):
        await router.ask()
        upstream.default_reply = Reply(cut_after=2)
        with pytest.raises(Exception, match="was interrupted"):
            await router.ask()
    chat = {**FIRST, "gen_ai_operation_name": "chat"}
    assert registry.get_sample_value("gen_ai_client_operation_duration_seconds_count", chat) == 1
    tokens = [
        registry.get_sample_value("gen_ai_client_token_usage_sum", {**chat, "gen_ai_token_type": kind})
        for kind in ("input", "output")
    ]
    assert tokens == [USAGE["prompt_tokens"], USAGE["completion_tokens"]]
    assert registry.get_sample_value("legato_step_duration_seconds_count", {"step": "prepare"}) == 2


async def test_chats_at_a_model_are_counted_while_they_run(socket_folder: Path, log: Log, registry: Registry) -> None:
    async with (
        Upstream(Reply(stall_after=2)) as upstream,
        running_router(socket_folder, log, {target("first"): upstream}, registry=registry) as router,
    ):
        call = router.open()
        await call.receive()
        assert registry.get_sample_value("legato_upstream_running", FIRST) == 1
        call.cancel()


async def test_usage_that_cannot_be_and_limits_that_are_not_kept_are_told(
    socket_folder: Path, log: Log, registry: Registry
) -> None:
    async with (
        Upstream() as upstream,
        running_router(socket_folder, log, {target("first"): upstream}, registry=registry) as router,
    ):

        def violations() -> list[float | None]:
            names = ("prompt_tokens", "completion_tokens", "max_tokens")
            return [
                registry.get_sample_value("legato_upstream_violations_total", {**FIRST, "violation": name})
                for name in names
            ]

        await router.ask()
        assert violations() == [0, 0, 0]
        upstream.replies.append(Reply(usage={"prompt_tokens": 900_000_000, "completion_tokens": 131_072}))
        await router.ask()
        assert violations() == [1, 1, 0]
        for stream in (True, False):
            upstream.replies.append(Reply(contents=[" rain" * 500]))
            await router.ask(stream=stream, max_tokens=10)
        assert violations() == [1, 1, 2]


async def test_promises_and_regions_of_providers_are_told(clock: FakeClock, log: Log, registry: Registry) -> None:
    played = Played(clock, log)
    show_model_states(played.model_states, registry)
    played.replace(target("first"), until=date(2026, 11, 18), region="canadaeast")
    await settled()
    provider = {"gen_ai_provider_name": "first"}
    assert registry.get_sample_value("legato_provider_promise_until_timestamp_seconds", provider) == 1_795_046_400
    assert registry.get_sample_value("legato_provider_other_region", provider) == 1
    played.replace(target("first"))
    assert registry.get_sample_value("legato_provider_promise_until_timestamp_seconds", provider) is None
    assert registry.get_sample_value("legato_provider_other_region", provider) is None
    await played.model_states.aclose()
