"""Servers that cut long prompts without a word, as Ollama does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_PROVIDER
from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.router.models.cut_prompts import REPORTED_EVERY_S, CutPrompts
from services.router.prompts.calibration import Calibration, CountedPrompt
from services.router.prompts.tokens import count
from services.router.providers.base import ProviderUsage
from services.router.routes.class_route import in_order
from services.router.routes.target import Target
from tests.services.router.harness import Answer, Router, as_json, refusal_of, running_router, target
from tests.support.fakes import FakeClock
from tests.support.upstreams.openai import Recorded, Reply, Upstream

WINDOW = 4096
SMALL, LARGE = 3_000, 8_000


class CuttingUpstream(Upstream):
    """Reads no more of a prompt than its window, and counts what it read."""

    window = WINDOW

    def reply_to(self, recorded: Recorded) -> Reply:
        read_tokens = min(self.window, count(recorded.body.decode()))
        return Reply(usage={"prompt_tokens": read_tokens, "completion_tokens": 7})


def prompt(words: int) -> bytes:
    return as_json([{"role": "user", "content": "rain " * words}])


async def ask(router: Router, words: int, *, stream: bool = True) -> Answer:
    return await router.ask(prompt(words), stream=stream)


def cuts(registry: Registry, name: str = "first") -> float | None:
    model = {"gen_ai_provider_name": name, "gen_ai_request_model": f"{name}-model"}
    return registry.get_sample_value("legato_upstream_violations_total", {**model, "violation": "prompt_cut"})


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_prompt_is_told_and_charged_as_the_provider_counts(
    stream: bool, socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    registry = Registry()
    async with (
        CuttingUpstream() as upstream,
        running_router(socket_folder, log, {target("first"): upstream}, registry=registry) as router,
    ):
        for words in (1_500, 2_500, SMALL):
            await ask(router, words, stream=stream)
        assert cuts(registry) == 0
        answer, *_ = [await ask(router, LARGE, stream=stream) for _ in range(3)]
    assert answer.text == "Hello, world!"
    assert answer.finished.usage.prompt_tokens == WINDOW
    assert answer.finished.usage_source == USAGE_SOURCE_PROVIDER
    assert cuts(registry) == 3
    [line] = [line for line in log_text().splitlines() if '"model.cut_prompt"' in line]
    assert f'"prompt_tokens":{WINDOW}' in line
    assert "rain" not in line


@pytest.mark.parametrize("stream", [True, False])
async def test_class_that_refuses_cut_prompts_sends_them_to_others(stream: bool, socket_folder: Path, log: Log) -> None:
    models = target("first"), target("second")
    route = replace(in_order(*models), refuse_cut_prompts=True)
    async with CuttingUpstream() as first, CuttingUpstream() as second:
        second.window = 100_000
        upstreams: dict[Target, Upstream] = {models[0]: first, models[1]: second}
        async with running_router(socket_folder, log, upstreams, route=route) as router:
            for words in (SMALL, LARGE, LARGE, LARGE + 1_000, SMALL):
                await ask(router, words, stream=stream)
    # The first large one tells; then it has only the small ones.
    assert [len(first.requests), len(second.requests)] == [3, 2]


async def test_prompt_that_every_server_cuts_is_too_long(socket_folder: Path, log: Log) -> None:
    only = target("first")
    route = replace(in_order(only), refuse_cut_prompts=True)
    async with (
        CuttingUpstream() as upstream,
        running_router(socket_folder, log, {only: upstream}, route=route) as router,
    ):
        await ask(router, SMALL)
        await ask(router, LARGE)
        refusal = await refusal_of(router, messages_json=prompt(LARGE))
        assert refusal.reason is Reason.CONTEXT_EXCEEDED
        assert f"maximum context length is {WINDOW} tokens" in str(refusal)
        assert (await ask(router, SMALL)).text == "Hello, world!"
        assert len(upstream.requests) == 3


PROMPT = CountedPrompt(LARGE, has_tools=False, account_id="a")


def usage(prompt_tokens: int, cached_tokens: int | None = None) -> ProviderUsage:
    return ProviderUsage(prompt_tokens, 7, cached_tokens)


def test_model_that_reads_a_prompt_as_large_again_cuts_no_longer() -> None:
    cut_prompts, calibration = CutPrompts(), Calibration()
    assert cut_prompts.record(PROMPT, usage(2_000), calibration)
    assert cut_prompts.record(PROMPT._replace(tokens=9_000), usage(2_048), calibration)
    assert (cut_prompts.cuts_prompts_from_tokens, cut_prompts.read_tokens) == (LARGE, 2_048)
    assert not cut_prompts.record(PROMPT._replace(tokens=SMALL), usage(SMALL), calibration)
    assert cut_prompts.cuts(LARGE)
    assert not cut_prompts.cuts(LARGE - 1)
    assert not cut_prompts.record(PROMPT._replace(tokens=9_000), usage(9_000), calibration)
    assert not cut_prompts.cuts(LARGE)


@pytest.mark.parametrize(
    ("tokens", "told", "is_cut"),
    [
        (LARGE, usage(3_000), True),
        # A dense vocabulary, and one that is not known yet.
        (LARGE, usage(4_000), False),
        # Of which so much was cached: some providers count only the rest, others all.
        (LARGE, usage(500, 7_500), False),
        (LARGE, usage(8_000, 7_500), False),
        (LARGE, usage(2_000, 1_000), True),
        # Too small to be cut.
        (1_000, usage(11), False),
    ],
)
def test_model_that_is_not_known_cuts_what_no_vocabulary_could_hold(
    tokens: int, told: ProviderUsage, is_cut: bool
) -> None:
    cut_prompts = CutPrompts()
    assert cut_prompts.record(PROMPT._replace(tokens=tokens), told, Calibration()) is is_cut
    assert (cut_prompts.cuts_prompts_from_tokens is not None) is is_cut


def test_what_is_reported_of_cut_prompts_says_nothing_about_the_vocabulary() -> None:
    cut_prompts, calibration = CutPrompts(), Calibration()
    for told in (usage(3_000), usage(500, 7_500)):
        cut_prompts.record(PROMPT, told, calibration)
    assert calibration.ratios(PROMPT) is None


def test_cut_prompts_are_told_once_a_minute(clock: FakeClock) -> None:
    told: list[tuple[int, int]] = []
    cut_prompts = CutPrompts(clock, lambda tokens, model_tokens: told.append((tokens, model_tokens)))
    for _ in range(3):
        cut_prompts.record(PROMPT, usage(3_000), Calibration())
    assert told == [(LARGE, 3_000)]
    clock.advance(REPORTED_EVERY_S)
    cut_prompts.record(PROMPT, usage(3_000), Calibration())
    assert len(told) == 2
