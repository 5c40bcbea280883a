"""Answers that are cut and go on at another model, in the same stream."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato_protos.router.v1.router_pb2 import USAGE_SOURCE_COUNTED, Grant
from services.chassis.errors import LegatoError, Reason
from services.chassis.telemetry.log import Log
from services.chassis.telemetry.metrics import Registry
from services.router.calls.continuation import MOST_CONTINUATIONS
from services.router.prompts.answer_prefix import PrefixStyle
from services.router.prompts.tokens import count
from services.router.routes.target import Target
from tests.services.router.harness import QUICK, WAYS, Answer, as_json, read, running_router, target
from tests.support.leftovers import nothing_is_left
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream
from tests.support.upstreams.continuing import WAYS as CUTS
from tests.support.upstreams.continuing import ContinuingUpstream, Cut, Script, Way, prefix_of
from tests.support.upstreams.openai import Reply, Upstream

TEXTS = ["Once", " upon", " a", " time", ", ", "\n\n", "in", " Orléans", ",", " 🌍", " ", "ha", "ha", "ha", "!"]


def continuing(name: str, style: PrefixStyle = PrefixStyle.LAST_MESSAGE) -> Target:
    return replace(target(name), continues=style)


def script(*cuts: Cut, **fields: Any) -> Script:
    return Script(TEXTS, cuts=deque(cuts), **fields)


def total(answer: Answer) -> tuple[str, int]:
    return answer.text, answer.finished.usage.completion_tokens


@WAYS
@pytest.mark.parametrize("way", CUTS)
@pytest.mark.parametrize("escapes", [False, True], ids=["plain", "escaped"])
async def test_cut_answer_goes_on_at_another_model_and_is_counted_once(
    escapes: bool, way: Way, ordinary: bool, socket_folder: Path, log: Log
) -> None:
    async with (
        ContinuingUpstream() as upstream,
        running_router(
            socket_folder, log, {target("first"): upstream, continuing("second"): upstream}, QUICK
        ) as router,
    ):
        for share in (0.0, 0.45, 1.0):
            upstream.script = told = script(Cut(way, share), escapes=escapes)
            answer = await router.ask(ordinary=ordinary, max_tokens=100)
            assert answer.text == told.text, share
            first, second = told.calls
            said = prefix_of(second)
            # Nothing is added but the beginning, without the blanks at its end.
            begun = [{"role": "assistant", "content": said}] if said else []
            assert second["messages"] == [*first["messages"], *begun]
            assert said == said.rstrip()
            assert (first["model"], second["model"]) == ("first-model", "second-model")
            assert second["max_tokens"] <= 100 - count(said)
            assert total(answer) == (told.text, count(told.text))
            assert answer.finished.usage.prompt_tokens == answer.responses[0].prompt_tokens
            assert answer.finished.usage_source == USAGE_SOURCE_COUNTED
            assert answer.finished.finish_reason == "stop"


async def test_answer_is_continued_twice_and_not_more_often(
    socket_folder: Path, log: Log, log_text: Callable[[], str]
) -> None:
    names, registry = ("first", "second", "third", "fourth"), Registry()
    async with (
        ContinuingUpstream() as upstream,
        running_router(
            socket_folder, log, dict.fromkeys(map(continuing, names), upstream), registry=registry
        ) as router,
    ):
        upstream.script = told = script(*[Cut("closed", 0.3)] * MOST_CONTINUATIONS, finish_reason="length")
        answer = await router.ask()
        assert total(answer) == (told.text, count(told.text))
        assert answer.finished.finish_reason == "length"
        assert answer.responses[0].started.attempt == 1
        assert [call["model"] for call in told.calls] == ["first-model", "second-model", "first-model"]
        [ended] = [line for line in log_text().splitlines() if "chat.ended" in line]
        assert msgspec.json.decode(ended)["continuations"] == MOST_CONTINUATIONS
        upstream.script = told = script(*[Cut("closed", 0.3)] * (MOST_CONTINUATIONS + 1))
        with pytest.raises(LegatoError) as error:
            await router.ask()
        assert error.value.reason is Reason.UPSTREAM_FAILED
        assert len(told.calls) == MOST_CONTINUATIONS + 1
        outcomes = {
            outcome: registry.get_sample_value("legato_continuations_total", {"outcome": outcome})
            for outcome in ("continued", "failed")
        }
        assert outcomes == {"continued": 2 * MOST_CONTINUATIONS, "failed": 1}


async def test_model_that_is_alone_continues_its_own_answer(socket_folder: Path, log: Log) -> None:
    async with (
        ContinuingUpstream() as upstream,
        running_router(socket_folder, log, {continuing("only"): upstream}) as router,
    ):
        upstream.script = told = script(Cut("closed", 0.5))
        assert (await router.ask()).text == told.text


async def test_answer_that_was_cut_at_its_very_end_is_asked_for_once(socket_folder: Path, log: Log) -> None:
    targets = (target("first"), continuing("second"), continuing("third"))
    async with (
        ContinuingUpstream(told := script(Cut("closed", 1.0))) as upstream,
        running_router(socket_folder, log, dict.fromkeys(targets, upstream)) as router,
    ):
        answer = await router.ask()
    assert total(answer) == (told.text, count(told.text))
    assert answer.finished.finish_reason == "stop"
    assert [call["model"] for call in told.calls] == ["first-model", "second-model"]


async def test_model_of_another_vendor_continues_after_blanks_that_it_would_refuse(
    socket_folder: Path, log: Log
) -> None:
    async with (
        Upstream(Reply(contents=["Once", " upon \n"], cut_after=3)) as first,
        AnthropicUpstream() as second,
        running_router(socket_folder, log, {target("first"): first, continuing("second"): second}) as router,
    ):
        second.replies.append(AnthropicReply(contents=[" \n", "a time."]))
        answer = await router.ask()
    assert total(answer) == ("Once upon \na time.", count("Once upon \na time."))
    *_, asked, begun = second.requests[0].json["messages"]
    assert (asked["role"], begun["role"]) == ("user", "assistant")
    assert [block["text"] for block in begun["content"]] == ["Once upon"]


async def test_answer_that_used_up_its_limit_is_cut_off_there(socket_folder: Path, log: Log) -> None:
    targets = (target("first"), continuing("second"))
    async with (
        ContinuingUpstream(told := script(Cut("closed", 1.0))) as upstream,
        running_router(socket_folder, log, dict.fromkeys(targets, upstream)) as router,
    ):
        answer = await router.ask(max_tokens=count(told.text))
    assert answer.finished.finish_reason == "length"
    assert total(answer) == (told.text, count(told.text))
    assert len(told.calls) == 1


async def test_credit_is_held_for_the_rest_and_not_for_the_prompt_again(socket_folder: Path, log: Log) -> None:
    async with (
        ContinuingUpstream(script(Cut("closed", 0.5))) as upstream,
        running_router(socket_folder, log, {target("first"): upstream, continuing("second"): upstream}) as router,
    ):
        enough = Grant(prompt_tokens=10_000, output_tokens=2)
        more = [Grant(prompt_tokens=10_000, output_tokens=tokens) for tokens in (4, 8, 16)]
        answer = await read(router.open(grant=enough), *more)
        assert total(answer) == ("".join(TEXTS), count("".join(TEXTS)))
        assert {need.prompt_tokens for need in answer.needs} == {answer.responses[-1].prompt_tokens}
        # Nothing more can be held: it ends where the credit does.
        upstream.script = script(Cut("closed", 0.5))
        last = Grant(prompt_tokens=10_000, output_tokens=4, last=True)
        answer = await read(router.open(grant=last))
        assert answer.finished.finish_reason == "length"
        assert answer.finished.usage.completion_tokens <= 4


@pytest.mark.parametrize(
    "fields",
    [
        {"tools_json": b'[{"type":"function","function":{"name":"weather"}}]'},
        {"parameters_json": b'{"response_format":{"type":"json_object"}}'},
        {"messages_json": as_json([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Once"}])},
    ],
    ids=["tools", "structured output", "a beginning of the client"],
)
async def test_what_is_not_plain_text_is_not_continued(fields: dict[str, Any], socket_folder: Path, log: Log) -> None:
    async with (
        ContinuingUpstream() as upstream,
        running_router(socket_folder, log, {target("first"): upstream, continuing("second"): upstream}) as router,
    ):
        upstream.script = told = Script(TEXTS, cuts=deque([Cut("closed", 0.5)]), repeats=True)
        with pytest.raises(LegatoError) as error:
            await router.ask(**fields)
        assert error.value.reason is Reason.UPSTREAM_FAILED
        assert len(told.calls) == 1


@pytest.mark.parametrize(
    "delta",
    [{"reasoning_content": "Hm"}, {"refusal": "No"}, {"tool_calls": [{"index": 0, "function": {"name": "f"}}]}],
    ids=["reasoning", "refusal", "call"],
)
async def test_answer_that_has_more_than_text_is_not_continued(
    delta: dict[str, Any], socket_folder: Path, log: Log
) -> None:
    events = [{"choices": [{"index": 0, "delta": each}]} for each in ({"content": "Hi"}, delta, {"content": "!"})]
    reply = Reply(events=[as_json(event).decode() for event in events], cut_after=3)
    async with (
        Upstream(reply) as first,
        Upstream() as second,
        running_router(socket_folder, log, {target("first"): first, continuing("second"): second}) as router,
    ):
        with pytest.raises(LegatoError):
            await router.ask()
        assert second.requests == []


async def test_continued_chat_leaves_nothing_to_the_collector_of_garbage(socket_folder: Path, log: Log) -> None:
    async with (
        ContinuingUpstream() as upstream,
        running_router(socket_folder, log, {target("first"): upstream, continuing("second"): upstream}) as router,
    ):

        async def ask() -> None:
            upstream.script = script(Cut("error", 0.5))
            await router.ask()

        await ask()
        async with nothing_is_left():
            for _ in range(5):
                await ask()
