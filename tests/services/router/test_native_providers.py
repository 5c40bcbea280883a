"""The router before providers that do not speak OpenAI's language."""

from pathlib import Path

import pytest

from services.chassis.errors import Reason
from services.chassis.telemetry.log import Log
from tests.services.router.harness import FIVE_CACHE_MARKS, refusal_of, running_router, target
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream, error
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream
from tests.support.upstreams.openai import Upstream

TOOLS = b'[{"type":"function","function":{"name":"get_time"}}]'
UNANSWERED = (
    b'[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":'
    b'[{"id":"a","type":"function","function":{"name":"get_time","arguments":"{}"}}]}]'
)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("vendor", [AnthropicUpstream, GeminiUpstream])
async def test_answer_and_usage_reach_the_caller(
    vendor: type[AnthropicUpstream] | type[GeminiUpstream], stream: bool, socket_folder: Path, log: Log
) -> None:
    async with vendor() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        answer = await router.ask(stream=stream)
        assert (answer.text, answer.finished.finish_reason) == ("Hello, world!", "stop")
        usage = answer.finished.usage
        assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (18, 5, 7)


async def test_what_one_provider_cannot_do_is_asked_of_the_next(socket_folder: Path, log: Log) -> None:
    async with AnthropicUpstream() as first, GeminiUpstream() as second:
        targets = {target("first"): first, target("second"): second}
        async with running_router(socket_folder, log, targets) as router:
            assert (await router.ask(FIVE_CACHE_MARKS)).text == "Hello, world!"
            assert not first.requests
            assert len(second.requests) == 1


async def test_what_no_provider_can_do_is_the_clients_mistake(socket_folder: Path, log: Log) -> None:
    async with (
        AnthropicUpstream() as upstream,
        running_router(socket_folder, log, {target("main"): upstream}) as router,
    ):
        refusal = await refusal_of(router, messages_json=FIVE_CACHE_MARKS)
        assert (refusal.reason, refusal.param) == (Reason.REQUEST_INVALID, "messages")


async def test_conversation_without_its_results_is_the_clients_mistake(socket_folder: Path, log: Log) -> None:
    async with (
        AnthropicUpstream() as upstream,
        running_router(socket_folder, log, {target("main"): upstream}) as router,
    ):
        refusal = await refusal_of(router, messages_json=UNANSWERED, tools_json=TOOLS)
        assert (refusal.reason, refusal.param) == (Reason.REQUEST_INVALID, "messages")
        assert not upstream.requests


async def test_overloaded_vendor_is_passed_over_even_if_it_says_so_in_its_stream(socket_folder: Path, log: Log) -> None:
    async with AnthropicUpstream() as first, Upstream() as second:
        begun = '{"type":"message_start","message":{"type":"message","usage":{"input_tokens":7}}}'
        overloaded = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
        first.replies += [
            error(529, "overloaded_error", "Overloaded"),
            AnthropicReply(events=[overloaded]),
            AnthropicReply(events=[begun, overloaded]),
        ]
        targets = {target("first"): first, target("second"): second}
        async with running_router(socket_folder, log, targets) as router:
            for asked in (1, 2, 3):
                assert (await router.ask()).text == "Hello, world!"
                assert len(second.requests) == asked


@pytest.mark.parametrize("stream", [True, False])
async def test_one_call_at_a_time_holds_where_the_provider_has_no_word_for_it(
    stream: bool, socket_folder: Path, log: Log
) -> None:
    async with GeminiUpstream() as upstream, running_router(socket_folder, log, {target("main"): upstream}) as router:
        upstream.default_reply = GeminiReply(contents=[], calls=[("get_time", {"zone": "UTC"}), ("get_time", {})])
        assert len((await router.ask(tools_json=TOOLS, stream=stream)).tool_calls) == 2
        one_call = b'{"parallel_tool_calls":false}'
        answer = await router.ask(tools_json=TOOLS, stream=stream, parameters_json=one_call)
        [call] = answer.tool_calls
        assert (call["name"], call["arguments"]) == ("get_time", '{"zone":"UTC"}')
        assert answer.finished.finish_reason == "tool_calls"
