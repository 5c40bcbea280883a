"""What a model thinks before it calls tools comes back to it, whatever the client keeps of its answers."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from services.chassis.errors import LegatoError
from services.chassis.telemetry.log import Log
from services.router.providers.openai import known_hosts
from services.router.reasoning.sealed_ids import LONGEST_ID_CHARACTERS
from services.router.reasoning.set_aside import FORMAT
from services.router.routes.class_route import in_order
from services.router.routes.target import Target
from services.router.schema.thoughts import MARK
from tests.services.router.harness import Router, running_router, target
from tests.services.router.reasoning.loops import Conversation
from tests.support.upstreams.openai import Reply, Upstream
from tests.support.upstreams.thinking import (
    DONE,
    DeepSeekUpstream,
    GoogleOpenAIUpstream,
    MoonshotUpstream,
    OpenRouterUpstream,
    ThinkingClaude,
    ThinkingGemini,
    VllmUpstream,
)
from tests.support.upstreams.thinking_responses import ThinkingOpenAI, ThinkingResponses

VENDORS = (
    DeepSeekUpstream,
    MoonshotUpstream,
    VllmUpstream,
    OpenRouterUpstream,
    GoogleOpenAIUpstream,
    ThinkingClaude,
    ThinkingGemini,
    ThinkingResponses,
)
each_vendor = pytest.mark.parametrize("vendor", VENDORS, ids=[vendor.__name__ for vendor in VENDORS])
each_way = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])

Run = Callable[..., AbstractAsyncContextManager[Router]]


@pytest.fixture
def run(socket_folder: Path, log: Log, monkeypatch: pytest.MonkeyPatch) -> Run:
    def start(*upstreams: Upstream, **options: Any) -> AbstractAsyncContextManager[Router]:
        if any(isinstance(upstream, GoogleOpenAIUpstream) for upstream in upstreams):
            monkeypatch.setitem(known_hosts.HOSTS, "127.0.0.1", known_hosts.Host(needs_signatures=True))
        targets = {
            target(f"model{number}", 4_000_000, 1_000_000): upstream for number, upstream in enumerate(upstreams)
        }
        return running_router(socket_folder, log, targets, **options)

    return start


@each_vendor
@each_way
async def test_every_turn_of_a_loop_has_the_thoughts_before_it(vendor: type[Any], stream: bool, run: Run) -> None:
    async with vendor() as upstream, run(upstream) as router:
        upstream.loop.loops = 20
        upstream.loop.calls_at_once = 2
        conversation = Conversation(router, stream=stream)
        assert await conversation.run() == DONE
        assert upstream.refused == []
        assert (upstream.loop.asked, upstream.loop.returned) == (20, 20)
    ids = conversation.call_ids
    assert len(set(ids)) == len(ids) == 40
    # The thoughts of calls that were made together travel once; some models think between them, too.
    assert [MARK in call_id for call_id in ids[::2]] == [True] * 20
    assert [MARK in call_id for call_id in ids[1::2]] == [
        bool(vendor is ThinkingResponses and turn % 2) for turn in range(20)
    ]
    assert max(map(len, ids)) < 1024


@each_way
async def test_ids_of_a_model_that_does_not_think_are_as_short_as_ever(stream: bool, run: Run) -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"city":"x"}'}}
    async with Upstream() as upstream, run(upstream) as router:
        upstream.replies.append(Reply(contents=[], tool_calls=[call], message_tool_calls=[call]))
        conversation = Conversation(router, stream=stream)
        await conversation.step()
        assert conversation.call_ids == ["call_1"]


@each_vendor
async def test_prompt_of_a_later_turn_begins_with_the_bytes_of_the_turn_before(vendor: type[Any], run: Run) -> None:
    async with vendor() as upstream, run(upstream) as router:
        upstream.loop.loops = 3
        await Conversation(router).run()
        name = {ThinkingGemini: "contents", ThinkingResponses: "input"}.get(vendor, "messages")
        prompts = [request.json[name] for request in upstream.requests]
    assert len(prompts) == 4
    for earlier, later in pairwise(prompts):
        unmarked = [_without_marks(prompt[: len(earlier)]) for prompt in (earlier, later)]
        assert unmarked[0] == unmarked[1]


def _without_marks(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_marks(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_marks(each) for name, each in value.items() if name != "cache_control"}
    return value


@pytest.mark.parametrize("change", ["cut to 40", "cut to 64", "changed", "without the beginning", "of another account"])
@each_vendor
async def test_id_that_was_changed_loses_the_thoughts_and_not_the_turn(
    vendor: type[Any], change: str, run: Run
) -> None:
    async with vendor() as upstream, run(upstream, route_fields=NEEDED) as router:
        upstream.loop.loops = 2
        upstream.loop.calls_at_once = 2
        conversation = Conversation(router)
        await conversation.step()
        _change_ids(conversation, change)
        account_id = "acct_2" if change == "of another account" else "acct_1"
        assert await conversation.run(account_id=account_id) == DONE
        assert upstream.refused == []
        # The first turn's are lost, the second's are not.
        assert upstream.loop.asked == 2
        assert upstream.loop.returned in (1, 2)
        if change != "without the beginning":
            assert upstream.loop.returned == 1


NEEDED = {"reasoning_needed": True}


def _change_ids(conversation: Conversation, change: str) -> None:
    def changed(call_id: str) -> str:
        match change:
            case "cut to 40":
                return call_id[:40]
            case "cut to 64":
                return call_id[:64]
            case "changed":
                middle = call_id.index(MARK) + 40 if MARK in call_id else 0
                return call_id[:middle] + call_id[middle:].swapcase() if middle else call_id
            case "without what they carry":
                return call_id.partition(MARK)[0]
            case "without the beginning":
                return call_id.removeprefix("call_")
        return call_id

    for message in conversation.messages:
        for call in message.get("tool_calls", ()):
            call["id"] = changed(call["id"])
        if "tool_call_id" in message:
            message["tool_call_id"] = changed(message["tool_call_id"])


@each_vendor
async def test_client_that_removes_everything_but_letters_and_digits_keeps_the_thoughts(
    vendor: type[Any], run: Run
) -> None:
    async with vendor() as upstream, run(upstream) as router:
        conversation = Conversation(router)
        await conversation.step()
        for message in conversation.messages:
            for call in message.get("tool_calls", ()):
                call["id"] = call["id"].replace("-", "")
            if "tool_call_id" in message:
                message["tool_call_id"] = message["tool_call_id"].replace("-", "")
        assert await conversation.run() == DONE
        assert upstream.loop.asked == upstream.loop.returned


@pytest.mark.parametrize("vendor", [DeepSeekUpstream, VllmUpstream, OpenRouterUpstream, ThinkingClaude])
@each_way
async def test_client_that_is_told_gets_seals_with_what_follows_the_thoughts(
    vendor: type[Any], stream: bool, run: Run
) -> None:
    async with vendor() as upstream, run(upstream) as router:
        upstream.loop.loops = 4
        conversation = Conversation(router, stream=stream, shows_reasoning=True)
        for turn in range(5):
            answer = await conversation.step()
            sealed = [response.reasoning_data for response in answer.responses if response.reasoning_data]
            assert bool(sealed) is (turn < 4)
            if not sealed:
                continue
            said = [response for response in answer.responses if response.contents or response.tool_calls]
            assert said[0].reasoning_data == sealed[0]
            message = next(each for each in reversed(conversation.messages) if each["role"] == "assistant")
            message["reasoning_details"] = [{"format": FORMAT, "data": ".".join(sealed)}]
            # Nothing but what was told comes back.
            _change_ids(conversation, "without what they carry")
        assert upstream.refused == []
        assert (upstream.loop.asked, upstream.loop.returned) == (4, 4)


@each_way
async def test_seal_comes_with_the_first_text_after_the_thoughts(stream: bool, run: Run) -> None:
    async with Upstream() as upstream, run(upstream) as router:
        upstream.replies.append(Reply(reasoning=["So", " it is."], contents=["a", "b", "c"] * 50))
        answer = await router.ask(stream=stream, shows_reasoning=True, account_id="acct_1")
        assert answer.text == "abc" * 50
        assert "".join(response.reasoning for response in answer.responses) == "So it is."
        said = [bool(response.reasoning_data) for response in answer.responses if response.contents]
        assert said == [True] + [False] * (len(said) - 1)


@pytest.mark.parametrize(("asked", "is_told"), [({}, True), ({"shows_reasoning": False}, False)])
async def test_class_decides_for_chats_that_do_not_say_whether_they_are_told(
    asked: dict[str, Any], is_told: bool, run: Run
) -> None:
    route = replace(in_order(target("model0", 4_000_000, 1_000_000)), show_reasoning=True, pad_streams=True)
    async with Upstream() as upstream, run(upstream, route=route) as router:
        upstream.replies.append(Reply(reasoning=["So it is."]))
        answer = await router.ask(account_id="acct_1", **asked)
        assert [bool("".join(each.reasoning for each in answer.responses))] == [is_told]
        assert [each.started.pads_streams for each in answer.responses if each.HasField("started")] == [True]


@pytest.mark.parametrize("vendor", [DeepSeekUpstream, MoonshotUpstream, ThinkingClaude, ThinkingResponses])
async def test_thoughts_too_long_for_an_id_are_left_out_and_the_turn_goes_on(vendor: type[Any], run: Run) -> None:
    async with vendor() as upstream, run(upstream, route_fields=NEEDED) as router:
        upstream.loop.size = 400_000
        conversation = Conversation(router)
        assert await conversation.run() == DONE
        assert upstream.refused == []
        assert upstream.loop.returned == 0
    assert all(MARK not in call_id for call_id in conversation.call_ids)


async def test_thoughts_of_some_thousand_words_fit(run: Run) -> None:
    async with DeepSeekUpstream() as upstream, run(upstream) as router:
        upstream.loop.size = 40_000
        conversation = Conversation(router)
        assert await conversation.run() == DONE
        assert upstream.loop.returned == 3
    longest = max(map(len, conversation.call_ids))
    assert 20_000 < longest <= LONGEST_ID_CHARACTERS


@pytest.mark.parametrize("first", VENDORS, ids=[vendor.__name__ for vendor in VENDORS])
@pytest.mark.parametrize(
    "second", [DeepSeekUpstream, ThinkingClaude, ThinkingGemini, GoogleOpenAIUpstream, ThinkingResponses]
)
async def test_model_of_another_vendor_goes_on_without_thoughts_that_it_cannot_read(
    first: type[Any], second: type[Any], run: Run
) -> None:
    if first is second:
        return
    async with first() as one, second() as other, run(one, other, route_fields=NEEDED) as router:
        conversation = Conversation(router)
        await conversation.step()
        one.reply_to = lambda recorded: Reply(status=503)
        other.loop.loops = 2
        await conversation.step()
        assert other.refused == []
        assert (other.loop.asked, other.loop.returned) == (1, 0)
        sent = other.requests[-1].body
        assert b"thought." not in sent
        assert MARK.encode() not in sent
        assert await conversation.run() == DONE
        # Its own comes back beside the other's that is missing.
        assert (other.loop.asked, other.loop.returned) == (2, 1)


async def test_another_router_of_the_fleet_opens_what_one_has_sealed(socket_folder: Path, log: Log) -> None:
    key = "1:" + "ab" * 32
    folders = [socket_folder / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    async with DeepSeekUpstream() as upstream:
        targets: dict[Target, Upstream] = {target("model0"): upstream}
        messages: list[dict[str, Any]] = []
        for number in range(3):
            async with running_router(folders[number % 2], log, targets, reasoning_key=key) as router:
                conversation = Conversation(router)
                conversation.messages = messages or conversation.messages
                await conversation.step()
                messages = conversation.messages
        assert (upstream.loop.asked, upstream.loop.returned) == (2, 2)
        assert upstream.refused == []


async def test_expired_key_loses_the_thoughts_and_not_the_turn(socket_folder: Path, log: Log) -> None:
    async with DeepSeekUpstream() as upstream:
        targets: dict[Target, Upstream] = {target("model0"): upstream}
        older, newer = "1:" + "ab" * 32, "2:" + "cd" * 32
        async with running_router(socket_folder, log, targets, route_fields=NEEDED, reasoning_key=older) as router:
            conversation = Conversation(router)
            await conversation.step()
        async with running_router(socket_folder, log, targets, route_fields=NEEDED, reasoning_key=newer) as router:
            conversation.router = router
            assert await conversation.run() == DONE
        assert upstream.refused == []
        assert upstream.loop.returned == upstream.loop.asked - 1


@each_way
async def test_loop_of_a_model_that_refuses_tools_over_chat_completions_has_its_thoughts(
    stream: bool, run: Run
) -> None:
    async with ThinkingOpenAI() as upstream, run(upstream, route_fields={"api": "auto"}) as router:
        upstream.loop.loops = 20
        assert await Conversation(router, stream=stream).run() == DONE
        assert (upstream.loop.asked, upstream.loop.returned) == (20, 20)
        assert upstream.refused == []
        # Nothing but the first turn costs a refusal.
        assert upstream.paths_asked == ["chat/completions", *["responses"] * 21]


async def test_server_that_takes_no_reasoning_is_sent_none(run: Run) -> None:
    async with VllmUpstream() as upstream, run(upstream, route_fields={"reasoning_back": False}) as router:
        assert await Conversation(router).run() == DONE
        assert upstream.loop.returned == 0


async def test_calls_that_a_vendor_does_not_name_are_told_apart(run: Run) -> None:
    """Gemini's need no ids."""
    async with ThinkingGemini() as upstream, run(upstream) as router:
        upstream.loop.calls_at_once = 3
        conversation = Conversation(router)
        assert await conversation.run() == DONE
        assert upstream.refused == []
    assert len(set(conversation.call_ids)) == 9


async def test_prompt_is_counted_with_what_its_model_is_sent(run: Run) -> None:
    async with DeepSeekUpstream() as upstream, run(upstream) as router:
        upstream.loop.size = 20_000
        counted, written = [], 0
        conversation = Conversation(router)
        for _ in range(3):
            answer = await conversation.step()
            counted.append(answer.responses[0].prompt_tokens)
            written = answer.responses[-1].output_tokens
        growth = [later - earlier for earlier, later in pairwise(counted)]
    # Some 12,000 tokens a thought, as it was counted when it was written, and not the longer ids.
    assert all(0.9 * written < grown < 1.2 * written for grown in growth), (growth, written)


async def test_request_is_refused_as_ever_if_a_result_is_missing(run: Run) -> None:
    async with ThinkingClaude() as upstream, run(upstream) as router:
        conversation = Conversation(router)
        await conversation.step()
        del conversation.messages[-1]
        with pytest.raises(LegatoError, match="must be followed"):
            await conversation.ask()
