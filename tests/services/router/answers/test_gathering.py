"""Whole answers: streamed to the router, and delivered when they are complete."""

import asyncio
from pathlib import Path

import pytest

from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_COUNTED, Grant
from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from services.router.answers import gathering
from services.router.answers.usage_check import longest_output_tokens
from services.router.models.circuit_breaker import FAILURES_IN_A_ROW
from services.router.prompts.tokens import count
from services.router.providers.answer import LARGEST_PIECE_CHARACTERS
from services.router.providers.base import Timeouts
from tests.services.router.harness import QUICK, Router, read, refusal_of, running_router, target
from tests.support.upstreams.anthropic import AnthropicUpstream
from tests.support.upstreams.openai import Reply, Upstream

WORDS = [" one", " two", " three", " four", " five", " six", " seven", " eight", " nine", " ten"]
UNNAMED = {"index": 0, "function": {"arguments": "{}"}}
NO_STREAMS = '{"error":{"message":"canary","param":"stream","code":"unsupported_value"}}'


def grant(output_tokens: int, *, last: bool = False) -> Grant:
    return Grant(prompt_tokens=500, output_tokens=output_tokens, last=last)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(cut_after=3, event_delay_s=0.01),
        Reply(stall_after=3),
        Reply(finish_reason=None),
        Reply(finish_reason="error"),
        Reply(events=['{"choices":[{"delta":{"content":"Hello"}}]}', '{"error":{"message":"canary"}}']),
        Reply(events=['{"choices":[{"delta":{"content":"Hello"}}]}', "<html>"]),
        Reply(contents=["Hello"], tool_calls=[UNNAMED]),
    ],
    ids=["cut", "stalled", "no reason", "failed", "error", "garbage", "unnamed call"],
)
async def test_whole_answer_that_breaks_is_had_from_the_next_model(reply: Reply, socket_folder: Path, log: Log) -> None:
    async with Upstream(reply) as first, Upstream() as second:
        targets = {target("first"): first, target("second"): second}
        async with running_router(socket_folder, log, targets, QUICK) as router:
            answer = await router.ask(stream=False)
    assert (answer.text, answer.responses[0].started.attempt) == ("Hello, world!", 2)
    # Only what was delivered, by the count of the model that wrote it.
    assert (answer.finished.usage.prompt_tokens, answer.finished.usage.completion_tokens) == (11, 7)


async def test_whole_answer_is_one_message_with_all_that_the_model_said(router: Router, upstream: Upstream) -> None:
    call = [
        {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"city":'}},
        {"index": 0, "function": {"arguments": '"Paris"}'}},
    ]
    upstream.replies.append(Reply(contents=["Let ", "me ", "see."], tool_calls=call, event_delay_s=0.005))
    answer = await router.ask(stream=False)
    assert (len(answer.responses), answer.text, answer.finished.finish_reason) == (1, "Let me see.", "tool_calls")
    assert answer.tool_calls == [{"id": "call_1", "name": "weather", "arguments": '{"city":"Paris"}'}]


async def test_whole_answer_without_end_is_had_from_the_next_model(
    socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "LARGEST_ANSWER_BYTES", 10_000)
    async with (
        Upstream(Reply(contents=["a word "], repeat=1000)) as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router,
    ):
        assert (await router.ask(stream=False)).text == "Hello, world!"


async def test_refusal_stays_one(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=[], refusals=["I ", "cannot."]))
    answer = await router.ask(stream=False)
    assert (answer.text, answer.responses[0].refusal) == ("I cannot.", True)


async def test_long_whole_answer_arrives_in_its_order(socket_folder: Path, log: Log) -> None:
    words = [f"{number} " for number in range(20_000)]
    async with (
        Upstream(Reply(contents=words, at_once=True)) as upstream,
        running_router(socket_folder, log, {target("main", max_output_tokens=90_000): upstream}) as router,
    ):
        answer = await router.ask(stream=False)
    assert answer.text == "".join(words)
    assert max(len(text) for each in answer.responses for text in each.contents) <= LARGEST_PIECE_CHARACTERS


async def test_whole_answer_may_take_longer_than_a_model_that_does_not_stream(socket_folder: Path, log: Log) -> None:
    async with (
        Upstream(Reply(contents=WORDS, event_delay_s=0.05)) as upstream,
        running_router(socket_folder, log, {target("main"): upstream}, Timeouts(whole_s=0.1)) as router,
    ):
        assert (await router.ask(stream=False)).text == "".join(WORDS)


async def test_credit_grows_with_a_whole_answer(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=WORDS * 3, event_delay_s=0.005))
    answer = await read(router.open(stream=False, grant=grant(10)), grant(20), grant(40))
    assert (answer.text, answer.finished.finish_reason) == ("".join(WORDS * 3), "stop")
    assert [need.output_tokens for need in answer.needs][:2] == [20, 40]


async def test_whole_answer_ends_where_the_credit_does(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=WORDS * 3, event_delay_s=0.005))
    answer = await read(router.open(stream=False, grant=grant(10)), grant(15, last=True))
    assert (answer.text, answer.finished.finish_reason) == ("".join((WORDS * 3)[:15]), "length")
    assert (answer.finished.usage.completion_tokens, answer.finished.usage_source) == (15, USAGE_SOURCE_COUNTED)


async def test_model_that_exceeds_its_limit_in_a_whole_answer_is_cut(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=WORDS * 30, event_delay_s=0.001))
    answer = await router.ask(stream=False, max_tokens=20)
    assert answer.finished.finish_reason == "length"
    assert count(answer.text) == longest_output_tokens(20) < 300
    assert answer.finished.usage.completion_tokens == 20
    async with asyncio.timeout(30):
        await upstream.requests[0].ended.wait()


async def test_client_that_leaves_before_a_whole_answer_is_complete_ends_it(router: Router, upstream: Upstream) -> None:
    upstream.replies.append(Reply(stall_after=3))
    call = router.open(stream=False)
    await upstream.received()
    while upstream.requests[0].writes < 3:
        await asyncio.sleep(0.01)
    call.cancel()
    async with asyncio.timeout(30):
        await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted


async def test_model_that_breaks_all_whole_answers_fails(socket_folder: Path, log: Log) -> None:
    async with Upstream(Reply(finish_reason=None)) as first, Upstream() as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            for _ in range(FAILURES_IN_A_ROW + 2):
                assert (await router.ask(stream=False)).text == "Hello, world!"
        assert len(first.requests) == FAILURES_IN_A_ROW


async def test_policy_that_stops_a_whole_answer_in_its_middle_is_told(socket_folder: Path, log: Log) -> None:
    error = '{"error":{"message":"canary","code":"content_filter"}}'
    reply = Reply(events=['{"choices":[{"delta":{"content":"Hello"}}]}', error])
    async with Upstream(reply) as first, Upstream() as second:
        async with running_router(socket_folder, log, {target("first"): first, target("second"): second}) as router:
            assert (await refusal_of(router, stream=False)).reason is Reason.CONTENT_POLICY
        assert not second.requests


class Unverified(Upstream):
    """Refuses to stream, as OpenAI does to organizations that it has not verified."""

    def refusal_of(self, recorded: object) -> Reply | None:
        return Reply(status=400, body=NO_STREAMS) if self.wants_stream(recorded) else None  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_model_that_refuses_to_stream_is_asked_for_the_whole_answer(
    stream: bool, socket_folder: Path, log: Log
) -> None:
    async with Unverified() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        answer = await router.ask(stream=stream, parameters_json=b'{"reasoning_effort":"low"}')
    assert (answer.text, len(upstream.requests)) == ("Hello, world!", 2)
    assert upstream.requests[1].json["reasoning_effort"] == "low"


async def test_every_kind_of_provider_streams_whole_answers(socket_folder: Path, log: Log) -> None:
    async with (
        AnthropicUpstream() as upstream,
        running_router(socket_folder, log, {target("main"): upstream}) as router,
    ):
        assert (await router.ask(stream=False)).text == "Hello, world!"
    assert upstream.requests[0].json["stream"] is True
