"""Answers of a server that keeps to the rules of the Responses API, over a real socket."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.providers.base import Failure, Piece, ProviderCall, ProviderUsage
from services.router.providers.responses.provider import ResponsesProvider
from services.router.schema.thoughts import ResponsesReasoning, Thought
from tests.services.router.providers.asking import (
    CALL,
    WEATHER,
    both_ways,
    calls_of,
    changed,
    failure_of,
    finish_of,
    hidden_of,
    pieces_of,
    text_of,
)
from tests.support.upstreams.responses import (
    ResponsesReply,
    ResponsesUpstream,
    call_item,
    message_item,
    reasoning_item,
    text_part,
)


def as_events(*events: dict[str, Any]) -> ResponsesReply:
    return ResponsesReply(events=[msgspec.json.encode(event).decode() for event in events])


def thoughts_of(pieces: Sequence[Piece]) -> list[list[Thought]]:
    """The thoughts that each call carries, and those after the last."""
    by_call = [list(call.thoughts) for piece in pieces for call in piece.tool_calls if call.name]
    return [*by_call, list(pieces[-1].thoughts)]


@both_ways
async def test_answer_arrives_whole_with_its_usage(
    call: ProviderCall, upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    pieces = await pieces_of(provider, call)
    assert (text_of(pieces), finish_of(pieces)) == ("Hello, world!", "stop")
    assert pieces[-1].usage == ProviderUsage(18, 7, 5, 2, reasoning_tokens=3)


@both_ways
@pytest.mark.parametrize("ends_only", [False, True])
async def test_calls_come_with_their_arguments_and_thoughts_stay_hidden(
    call: ProviderCall, ends_only: bool, upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    calls = [("get_weather", ['{"ci', 'ty":"Par', 'is"}']), ("get_time", ["{}"])]
    upstream.replies.append(
        ResponsesReply(reasoning=["Hm.", "So."], contents=["Let me see."], calls=calls, ends_only=ends_only)
    )
    pieces = await pieces_of(provider, changed(call, tools_json=WEATHER))
    assert (text_of(pieces), hidden_of(pieces), finish_of(pieces)) == ("Let me see.", "Hm.\n\nSo.", "stop")
    assert calls_of(pieces) == [("get_weather", {"city": "Paris"}), ("get_time", {})]


@both_ways
async def test_refusal_is_no_answer(
    call: ProviderCall, upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    upstream.replies.append(ResponsesReply(contents=[], refusals=["I ", "cannot."]))
    pieces = await pieces_of(provider, call)
    assert text_of(pieces) == "I cannot."
    assert all(piece.refuses for piece in pieces if piece.contents)


@both_ways
async def test_each_call_carries_what_was_thought_before_it_in_its_place(
    call: ProviderCall, upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    first, second, last = (reasoning_item(f"rs_{name}", f"thought {name}") for name in "abc")
    upstream.replies.append(
        ResponsesReply(
            contents=[],
            said_items=[
                message_item("msg_1", text_part("Hello")),
                first,
                call_item("call_a", "get_time", "{}"),
                second,
                call_item("call_b", "get_time", "{}"),
                last,
            ],
        )
    )
    pieces = await pieces_of(provider, changed(call, tools_json=WEATHER))
    kept = [[msgspec.json.decode(each.item_json) for each in carried] for carried in thoughts_of(pieces)]  # type: ignore[union-attr]
    wanted = [[{name: value for name, value in item.items() if name != "status"}] for item in (first, second, last)]
    assert kept == wanted
    assert [each.at for carried in thoughts_of(pieces) for each in carried if isinstance(each, ResponsesReasoning)] == [
        5,
        5,
        5,
    ]


async def test_reasoning_that_nobody_could_read_later_is_not_kept(
    upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    """earendil-works/pi#6409: an item without its encrypted content is looked for among stored ones, and refused."""
    item = reasoning_item("rs_a", "thought", ["Hm."]) | {"encrypted_content": None}
    upstream.replies.append(ResponsesReply(said_items=[item, call_item("call_a", "get_time", "{}")]))
    pieces = await pieces_of(provider, changed(CALL, tools_json=WEATHER))
    assert thoughts_of(pieces) == [[], []]


@both_ways
async def test_comment_and_answer_of_one_response_are_paragraphs(
    call: ProviderCall, upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    """JetBrains/koog#1961: models from GPT-5.4 on send both."""
    items = [message_item("msg_1", text_part("I look."), phase="commentary"), message_item("msg_2", text_part("Rain."))]
    upstream.replies.append(ResponsesReply(contents=[], said_items=items))
    assert text_of(await pieces_of(provider, call)) == "I look.\n\nRain."


@both_ways
async def test_usage_that_is_odd_or_missing_breaks_no_answer(
    call: ProviderCall, upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    odd = {"input_tokens": True, "output_tokens": 7, "input_tokens_details": 7, "output_tokens_details": None}
    upstream.replies += [ResponsesReply(usage=odd), ResponsesReply(usage=None)]
    assert (await pieces_of(provider, call))[-1].usage == ProviderUsage(None, 7, None)
    assert (await pieces_of(provider, call))[-1].usage is None


async def test_call_of_a_trace_names_its_model(upstream: ResponsesUpstream, provider: ResponsesProvider) -> None:
    usage = (await pieces_of(provider, replace(CALL, is_traced=True)))[-1].usage
    assert usage is not None
    assert usage.model_name == "vendor-model"


FAILURES = {
    "server_error": Failure.PROVIDER,
    "rate_limit_exceeded": Failure.BUSY,
    "server_is_overloaded": Failure.BUSY,
    "insufficient_quota": Failure.PROVIDER,
    "context_length_exceeded": Failure.CONTEXT,
    "invalid_prompt": Failure.POLICY,
}


class TestErrorsInTheStream:
    @pytest.mark.parametrize(("code", "failure"), FAILURES.items())
    async def test_response_that_failed_means_what_its_code_says(
        self, code: str, failure: Failure, upstream: ResponsesUpstream, provider: ResponsesProvider
    ) -> None:
        """earendil-works/pi#1458."""
        error = {"code": code, "message": "canary"}
        upstream.replies.append(
            as_events({"type": "response.failed", "response": {"status": "failed", "error": error}})
        )
        failed = await failure_of(provider)
        assert (failed.failure, failed.what) == (failure, "reported an error in place of an answer")

    @pytest.mark.parametrize(("code", "failure"), FAILURES.items())
    async def test_error_event_is_read_as_it_is_sent_and_as_it_is_documented(
        self, code: str, failure: Failure, upstream: ResponsesUpstream, provider: ResponsesProvider
    ) -> None:
        """openai/openai-dotnet#881, zendev-sh/goai#88."""
        error = {"code": code, "message": "canary", "param": None}
        for event in ({"type": "error", "error": error}, {"type": "error", **error}):
            upstream.replies.append(as_events({**event, "sequence_number": 2}))
            assert (await failure_of(provider)).failure is failure

    async def test_prompt_that_is_too_long_is_told_by_its_sentence(
        self, upstream: ResponsesUpstream, provider: ResponsesProvider
    ) -> None:
        """anomalyco/opencode#6071."""
        message = "Your input exceeds the context window of this model. Please adjust your input and try again."
        upstream.replies.append(as_events({"type": "error", "error": {"message": message, "param": "input"}}))
        assert (await failure_of(provider)).failure is Failure.CONTEXT
