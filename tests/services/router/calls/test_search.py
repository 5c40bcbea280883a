"""Models that count prompts otherwise than we do, up to the end of their windows."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato_protos.router.v1.router_pb2 import Grant
from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from services.router.prompts.prompt import load_character
from services.router.prompts.tokens import count
from services.router.routes.target import Target
from tests.services.router.harness import Router, as_json, read, refusal_of, running_router, target
from tests.support.upstreams import anthropic
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.openai import Recorded, Reply, Upstream

WINDOW_TOKENS = 4_000
MAX_OUTPUT_TOKENS = 2_000
WORD = " rain"

OPENAI = (
    "This model's maximum context length is {window} tokens. However, you requested {total} tokens ({prompt} in the"
    " messages, {output} in the completion). Please reduce the length of the messages or completion."
)
WITHOUT_FIGURES = "Please reduce the length of the messages or completion."


class CountingUpstream(Upstream):
    """Refuses, as servers do, what exceeds its window by a count of its own: so many times ours."""

    def __init__(self, ratio: float, form: str = OPENAI, window_tokens: int = WINDOW_TOKENS) -> None:
        super().__init__()
        self.ratio = ratio
        self.form = form
        self.window_tokens = window_tokens

    @property
    def limits(self) -> list[int]:
        """The output limits that were sent; 0 where none was."""
        return [request.json.get("max_tokens", 0) for request in self.requests]

    def count(self, body: dict[str, Any]) -> int:
        texts = [message["content"] for message in body["messages"]]
        texts += [tool["function"]["description"] for tool in body.get("tools", ())]
        return math.ceil(self.ratio * sum(map(count, texts)))

    def refusal_of(self, recorded: Recorded) -> Reply | None:
        prompt, output = self.count(recorded.json), recorded.json.get("max_tokens", 0)
        if prompt + output <= self.window_tokens:
            return None
        message = self.form.format(window=self.window_tokens, total=prompt + output, prompt=prompt, output=output)
        error = {"message": message, "type": "invalid_request_error", "code": "context_length_exceeded"}
        return Reply(status=400, body=msgspec.json.encode({"error": error}).decode())

    def reply_to(self, recorded: Recorded) -> Reply:
        usage = {"prompt_tokens": self.count(recorded.json), "completion_tokens": 4}
        return Reply(usage=usage)

    def prompt_of(self, part: float, *, tools: bool) -> dict[str, Any]:
        """A chat whose prompt has this part of the window, by its own count."""
        words = int(part * self.window_tokens / self.ratio) - count(load_character().text)
        if not tools:
            return {"messages_json": as_json([{"role": "user", "content": WORD * words}])}
        described = {"name": "look", "description": WORD * (words - count("Hi")), "parameters": {"type": "object"}}
        return {
            "messages_json": as_json([{"role": "user", "content": "Hi"}]),
            "tools_json": as_json([{"type": "function", "function": described}]),
        }


@asynccontextmanager
async def router_before(folder: Path, log: Log, upstream: Upstream) -> AsyncIterator[Router]:
    only = target("main", WINDOW_TOKENS, MAX_OUTPUT_TOKENS)
    async with running_router(folder, log, {only: upstream}) as router:
        yield router


@pytest.mark.parametrize("part", [0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("ratio", [1.0, 1.4, 1.8, 0.7])
async def test_while_a_token_fits_there_is_an_answer_after_one_more_attempt_at_most(
    ratio: float, part: float, socket_folder: Path, log: Log
) -> None:
    for number, (tools, stream, form) in enumerate(product((True, False), (True, False), (OPENAI, WITHOUT_FIGURES))):
        folder = socket_folder / str(number)
        folder.mkdir()
        await ask_twice(ratio, part, tools, stream, form, folder, log)


async def ask_twice(ratio: float, part: float, tools: bool, stream: bool, form: str, folder: Path, log: Log) -> None:
    async with CountingUpstream(ratio, form) as upstream, router_before(folder, log, upstream) as router:
        chat = upstream.prompt_of(part, tools=tools)
        answer = await router.ask(**chat, stream=stream, max_tokens=MAX_OUTPUT_TOKENS)
        assert answer.text == "Hello, world!"
        assert answer.responses[0].started.max_tokens == upstream.limits[-1]
        assert answer.responses[0].started.attempt == len(upstream.limits) <= 2
        if len(upstream.limits) == 2 and form is OPENAI:
            # All the room there is, but for a token.
            prompt_tokens = upstream.count(upstream.requests[-1].json)
            assert upstream.limits[-1] == min(MAX_OUTPUT_TOKENS, WINDOW_TOKENS - prompt_tokens - 1)

        upstream.requests.clear()
        assert (await router.ask(**chat, stream=stream, max_tokens=MAX_OUTPUT_TOKENS)).text == "Hello, world!"
        [max_tokens] = upstream.limits
        prompt_tokens = upstream.count(upstream.requests[0].json)
        assert max_tokens >= min(MAX_OUTPUT_TOKENS, (WINDOW_TOKENS - prompt_tokens) // 3)


async def test_model_that_was_asked_before_is_known_for_prompts_of_other_sizes(socket_folder: Path, log: Log) -> None:
    async with CountingUpstream(1.8) as upstream, router_before(socket_folder, log, upstream) as router:
        await router.ask(**upstream.prompt_of(0.4, tools=True), max_tokens=MAX_OUTPUT_TOKENS)
        for part in (0.8, 0.9, 0.95, 0.99):
            await router.ask(**upstream.prompt_of(part, tools=True), max_tokens=MAX_OUTPUT_TOKENS)
        assert len(upstream.requests) == 5


async def test_prompt_that_leaves_room_for_one_token_gets_that_one(socket_folder: Path, log: Log) -> None:
    async with CountingUpstream(1.0) as upstream, router_before(socket_folder, log, upstream) as router:
        await router.ask(**upstream.prompt_of(1 - 1 / WINDOW_TOKENS, tools=False))
        assert upstream.limits[-1] == 1
        assert len(upstream.limits) <= 2


@pytest.mark.parametrize(("form", "asked"), [(OPENAI, 1), (WITHOUT_FIGURES, 2)])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_prompt_that_fills_the_window_is_the_clients_to_shorten(
    form: str, asked: int, stream: bool, socket_folder: Path, log: Log
) -> None:
    async with CountingUpstream(1.8, form) as upstream, router_before(socket_folder, log, upstream) as router:
        refusal = await refusal_of(router, **upstream.prompt_of(1.01, tools=True), stream=stream)
        assert (refusal.reason, refusal.param) == (Reason.CONTEXT_EXCEEDED, "messages")
        assert len(upstream.requests) == asked


async def test_prompt_that_no_vocabulary_makes_fit_is_not_sent(socket_folder: Path, log: Log) -> None:
    async with CountingUpstream(1.0) as upstream, router_before(socket_folder, log, upstream) as router:
        refusal = await refusal_of(router, **upstream.prompt_of(1.7, tools=False))
        assert refusal.reason is Reason.CONTEXT_EXCEEDED
        assert upstream.requests == []


async def test_figures_that_cannot_be_are_not_followed(socket_folder: Path, log: Log) -> None:
    """A message may quote the client, who may write anything."""
    form = "This model's maximum context length is 999999999 tokens. However, your request has 1 input tokens."
    async with CountingUpstream(1.8, form) as upstream, router_before(socket_folder, log, upstream) as router:
        await router.ask(**upstream.prompt_of(0.9, tools=False), max_tokens=MAX_OUTPUT_TOKENS)
        first, second = upstream.limits
        assert 1 <= second < first


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_limit_is_sent_only_where_the_client_the_window_or_the_credit_sets_one(
    stream: bool, socket_folder: Path, log: Log
) -> None:
    """Vendors reserve what is sent, and count it against their limits of tokens a minute."""
    async with CountingUpstream(1.0) as upstream, router_before(socket_folder, log, upstream) as router:
        small, large = upstream.prompt_of(0.4, tools=False), upstream.prompt_of(0.9, tools=False)
        covered, last = (
            Grant(prompt_tokens=10**6, output_tokens=10**6, last=True),
            Grant(prompt_tokens=10**6, output_tokens=70, last=True),
        )
        answers = [
            await router.ask(**small, stream=stream),
            await router.ask(**small, stream=stream, grant=covered),
            await router.ask(**small, stream=stream, max_tokens=MAX_OUTPUT_TOKENS),
            await router.ask(**large, stream=stream),
            await router.ask(**small, stream=stream, grant=last),
        ]
        assert upstream.limits[:3] == [0, 0, MAX_OUTPUT_TOKENS]
        assert upstream.limits[4] == 70
        fitted = upstream.limits[3]
        assert 0 < fitted < MAX_OUTPUT_TOKENS
        told = [answer.responses[0].started.max_tokens for answer in answers]
        assert told == [MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS, fitted, 70]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("grows", [True, False], ids=["grants that grow", "all granted"])
async def test_answer_of_a_model_that_was_sent_no_limit_ends_at_it_all_the_same(
    stream: bool, grows: bool, socket_folder: Path, log: Log
) -> None:
    upstream = Upstream(Reply(contents=[" word"] * 100, repeat=100, finish_reason="stop"))
    async with upstream, router_before(socket_folder, log, upstream) as router:
        granted_tokens = (100, 400, 1600, 10**4) if grows else (10**4,)
        grants = [Grant(prompt_tokens=10**6, output_tokens=tokens) for tokens in granted_tokens]
        answer = await read(router.open(stream=stream, grant=grants[0]), *grants[1:])
        [request] = upstream.requests
        assert "max_tokens" not in request.json
        assert count(answer.text) == answer.finished.usage.completion_tokens == MAX_OUTPUT_TOKENS
        assert answer.finished.finish_reason == "length"
        assert all(need.output_tokens <= MAX_OUTPUT_TOKENS for need in answer.needs)
        # The model did nothing wrong.
        [model_state] = router.model_states.by_class["forte"].all
        assert not sum(model_state.breaker.violations.values())


async def test_hidden_reasoning_beyond_a_limit_that_was_not_sent_is_not_charged(socket_folder: Path, log: Log) -> None:
    usage = {"prompt_tokens": 20, "completion_tokens": MAX_OUTPUT_TOKENS + 1000}
    async with Upstream(Reply(usage=usage)) as upstream, router_before(socket_folder, log, upstream) as router:
        answer = await router.ask()
        assert answer.finished.usage.completion_tokens == MAX_OUTPUT_TOKENS
        [model_state] = router.model_states.by_class["forte"].all
        assert not sum(model_state.breaker.violations.values())


async def test_model_with_a_larger_window_is_asked_before_a_shorter_answer_is(socket_folder: Path, log: Log) -> None:
    small, large = CountingUpstream(1.8), CountingUpstream(1.8, window_tokens=2 * WINDOW_TOKENS)
    targets: dict[Target, Upstream] = {
        target("small", WINDOW_TOKENS, MAX_OUTPUT_TOKENS): small,
        target("large", 2 * WINDOW_TOKENS, MAX_OUTPUT_TOKENS): large,
    }
    async with small, large, running_router(socket_folder, log, targets) as router:
        chat = small.prompt_of(0.95, tools=False)
        await router.ask(**chat, max_tokens=MAX_OUTPUT_TOKENS)
        assert (len(small.requests), large.limits) == (1, [MAX_OUTPUT_TOKENS])
        large.window_tokens = 0
        small.requests.clear()
        # No other model has room: then the shorter answer is better than none.
        assert (await router.ask(**chat, max_tokens=MAX_OUTPUT_TOKENS)).text == "Hello, world!"
        assert len(small.requests) == 1


async def test_larger_window_that_fails_leaves_the_chat_to_the_one_that_refused_for_length(
    socket_folder: Path, log: Log
) -> None:
    small, large = CountingUpstream(1.8), Upstream(Reply(status=500))
    targets = {
        target("small", WINDOW_TOKENS, MAX_OUTPUT_TOKENS): small,
        target("large", 2 * WINDOW_TOKENS, MAX_OUTPUT_TOKENS): large,
    }
    async with small, large, running_router(socket_folder, log, targets) as router:
        answer = await router.ask(**small.prompt_of(0.95, tools=False), max_tokens=MAX_OUTPUT_TOKENS)
        assert answer.responses[0].started.attempt == 3
        assert (len(small.requests), len(large.requests)) == (2, 1)


async def test_shorter_answer_is_asked_for_within_the_grant(socket_folder: Path, log: Log) -> None:
    """The prompt is covered once, and the answer is never longer than what is left of the credit."""
    async with CountingUpstream(1.8) as upstream, router_before(socket_folder, log, upstream) as router:
        chat = upstream.prompt_of(0.9, tools=False)
        grant = Grant(prompt_tokens=WINDOW_TOKENS, output_tokens=390, last=True)
        answer = await read(router.open(**chat, grant=grant))
        assert answer.needs == []
        assert answer.text == "Hello, world!"
        assert upstream.limits == [390]
        upstream.requests.clear()
        small = Grant(prompt_tokens=10, output_tokens=10)
        answer = await read(router.open(**chat, grant=small), Grant(prompt_tokens=WINDOW_TOKENS, output_tokens=390))
        assert len(answer.needs) == 1
        assert answer.needs[0].prompt_tokens == answer.responses[-1].prompt_tokens


async def test_refusal_for_length_is_not_held_against_the_model(socket_folder: Path, log: Log) -> None:
    async with CountingUpstream(1.8) as upstream, router_before(socket_folder, log, upstream) as router:
        for _ in range(10):
            await refusal_of(router, **upstream.prompt_of(1.01, tools=True))
        assert (await router.ask()).text == "Hello, world!"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("upstream", "refusal"),
    [
        (
            AnthropicUpstream(),
            anthropic.error(
                400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 3900 + 2000 > 4000"
            ),
        ),
        (
            Upstream(),
            Reply(status=400, body='{"error":{"message":"maximum context length is 4000 and has 3900 input tokens"}}'),
        ),
        (
            # In place of an answer, under a status that promised one.
            Upstream(),
            Reply(body='{"error":{"code":400,"message":"maximum context length is 4000, 3900 input tokens"}}'),
        ),
    ],
    ids=["anthropic", "openai", "openai, with status 200"],
)
async def test_every_kind_of_provider_is_asked_again_with_the_room_it_names(
    upstream: Upstream,
    refusal: Reply,
    stream: bool,
    socket_folder: Path,
    log: Log,
) -> None:
    upstream.requests.clear()
    upstream.replies.append(refusal)
    async with upstream, router_before(socket_folder, log, upstream) as router:
        assert (await router.ask(stream=stream, max_tokens=MAX_OUTPUT_TOKENS)).text == "Hello, world!"
        assert [request.json["max_tokens"] for request in upstream.requests] == [MAX_OUTPUT_TOKENS, 99]
