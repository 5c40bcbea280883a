"""Answers of a server that keeps to Google's rules, over a real socket."""

from typing import Any

import pytest

from services.router.providers.base import ProviderCall, ProviderUsage
from services.router.providers.gemini.provider import GeminiProvider
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
from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream

CALLS: list[tuple[str, dict[str, Any]]] = [("get_weather", {"city": "Paris"}), ("get_time", {})]


@both_ways
async def test_answer_arrives_whole_with_its_usage(
    call: ProviderCall, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    pieces = await pieces_of(provider, call)
    assert (text_of(pieces), finish_of(pieces)) == ("Hello, world!", "stop")
    # What it thought is not in the vendor's own count of what it said; what was cached is in that of the prompt.
    assert pieces[-1].usage == ProviderUsage(18, 4 + 3, 5, reasoning_tokens=3)


@both_ways
@pytest.mark.parametrize("call_ids", [True, False])
async def test_calls_come_with_their_arguments_and_thoughts_stay_hidden(
    call_ids: bool, call: ProviderCall, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(thinking="Hm.", contents=["Let me see."], calls=CALLS, call_ids=call_ids))
    pieces = await pieces_of(provider, changed(call, tools_json=WEATHER))
    assert (text_of(pieces), hidden_of(pieces), finish_of(pieces)) == ("Let me see.", "Hm.", "stop")
    assert calls_of(pieces) == CALLS


@both_ways
async def test_prompt_that_is_blocked_ends_as_filtered(
    call: ProviderCall, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    blocked = '{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":9}}'
    upstream.replies.append(GeminiReply(events=[blocked]) if call.stream else GeminiReply(body=blocked))
    pieces = await pieces_of(provider, call)
    assert (text_of(pieces), finish_of(pieces)) == ("", "content_filter")
    assert pieces[-1].usage == ProviderUsage(9, None, None)


async def test_responses_of_every_shape_are_understood(upstream: GeminiUpstream, provider: GeminiProvider) -> None:
    upstream.replies.append(
        GeminiReply(
            events=[
                '{"usageMetadata":{"promptTokenCount":4}}',
                '{"candidates":[{}]}',
                '{"candidates":[{"content":{}}]}',
                '{"candidates":[{"content":{"parts":[{"text":""},{"newKind":7},{"text":"Yes","thoughtSignature":"x"}]}}]}',
                '{"candidates":[{"content":null,"finishReason":"MAX_TOKENS"}]}',
                '{"candidates":[],"usageMetadata":{"candidatesTokenCount":1,"toolUsePromptTokenCount":2,"x":[]}}',
            ]
        )
    )
    pieces = await pieces_of(provider, CALL)
    assert (text_of(pieces), finish_of(pieces)) == ("Yes", "length")
    assert pieces[-1].usage == ProviderUsage(6, 1, None)


@both_ways
async def test_usage_that_is_odd_or_missing_breaks_no_answer(
    call: ProviderCall, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(usage=None))
    assert (await pieces_of(provider, call))[-1].usage is None
