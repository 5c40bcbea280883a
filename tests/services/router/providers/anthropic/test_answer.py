"""Answers of a server that keeps to Anthropic's rules, over a real socket."""

from typing import Any

import msgspec

from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import ProviderCall, ProviderUsage
from tests.services.router.providers.asking import (
    CALL,
    WEATHER,
    both_ways,
    calls_of,
    changed,
    finish_of,
    hidden_of,
    pieces_of,
    text_of,
)
from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream


@both_ways
async def test_answer_arrives_whole_with_its_usage(
    call: ProviderCall, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    pieces = await pieces_of(provider, call)
    assert (text_of(pieces), finish_of(pieces)) == ("Hello, world!", "stop")
    # What was read from the cache and what was written to it is not in the vendor's own count of the input.
    assert pieces[-1].usage == ProviderUsage(11 + 5 + 2, 7, 5, 2)


@both_ways
async def test_calls_come_with_their_arguments_and_thoughts_stay_hidden(
    call: ProviderCall, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    calls = [("get_weather", ['{"ci', 'ty":"Par', 'is"}']), ("get_time", [])]
    upstream.replies.append(
        AnthropicReply(thinking="Hm.", contents=["Let me see."], calls=calls, finish_reason="tool_use")
    )
    pieces = await pieces_of(provider, changed(call, tools_json=WEATHER))
    assert (text_of(pieces), hidden_of(pieces), finish_of(pieces)) == ("Let me see.", "Hm.", "tool_calls")
    assert calls_of(pieces) == [("get_weather", {"city": "Paris"}), ("get_time", {})]


async def test_blocks_that_are_written_at_once_are_kept_apart(
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    def block(index: int, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"content_block_{kind}", "index": index, **fields}

    def piece(index: int, partial_json: str) -> dict[str, Any]:
        return block(index, "delta", delta={"type": "input_json_delta", "partial_json": partial_json})

    events: list[dict[str, Any]] = [
        block(3, "start", content_block={"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}),
        block(4, "start", content_block={"type": "tool_use", "id": "b", "name": "get_time", "input": {"zone": "UTC"}}),
        block(5, "start", content_block={"type": "something_new", "delta": 7}),
        piece(3, '{"city":'),
        block(4, "stop"),
        {"type": "something_new", "delta": 7, "index": 3},
        piece(3, '"Paris"}'),
        block(3, "stop"),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    upstream.replies.append(AnthropicReply(events=[msgspec.json.encode(event).decode() for event in events]))
    pieces = await pieces_of(provider, CALL)
    assert calls_of(pieces) == [("get_weather", {"city": "Paris"}), ("get_time", {"zone": "UTC"})]


async def test_calls_of_the_vendors_own_tools_are_not_the_clients(
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    searching = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    query = {"type": "input_json_delta", "partial_json": '{"query":"x"}'}
    events: list[dict[str, Any]] = [
        {"type": "content_block_start", "index": 0, "content_block": searching},
        {"type": "content_block_delta", "index": 0, "delta": query},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "Hello"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    upstream.replies.append(AnthropicReply(events=[msgspec.json.encode(event).decode() for event in events]))
    pieces = await pieces_of(provider, CALL)
    assert (text_of(pieces), finish_of(pieces)) == ("Hello", "stop")
    assert not any(piece.tool_calls for piece in pieces)


@both_ways
async def test_usage_that_is_odd_or_missing_breaks_no_answer(
    call: ProviderCall, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(usage={"input_tokens": True, "output_tokens": -1}))
    assert (await pieces_of(provider, call))[-1].usage == ProviderUsage(None, 1 if call.stream else None, None)


async def test_stream_that_ends_after_its_reason_is_whole(
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(done=False))
    assert finish_of(await pieces_of(provider, CALL)) == "stop"
