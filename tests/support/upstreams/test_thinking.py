"""The fakes refuse what their vendors refuse, in their words, so that tests with them were red before."""

import json
from typing import Any

import aiohttp
import pytest

from tests.support.upstreams.openai import Upstream
from tests.support.upstreams.thinking import (
    FUNCTION,
    DeepSeekUpstream,
    GoogleOpenAIUpstream,
    MoonshotUpstream,
    ThinkingClaude,
    ThinkingGemini,
)

CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": FUNCTION, "arguments": "{}"}}],
}
CHAT = [{"role": "user", "content": "Hi"}, CALLED, {"role": "tool", "tool_call_id": "call_1", "content": "x"}]
USE = {"type": "tool_use", "id": "toolu_1", "name": FUNCTION, "input": {}}
CLAUDE = [
    {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    {"role": "assistant", "content": [USE]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "x"}]},
]
GEMINI = [
    {"role": "user", "parts": [{"text": "Hi"}]},
    {"role": "model", "parts": [{"functionCall": {"name": FUNCTION, "args": {}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": FUNCTION, "response": {}}}]},
]
TOOL = {"name": FUNCTION, "input_schema": {"type": "object"}}
THINKS = {"type": "enabled", "budget_tokens": 1024}
FORGED = {"type": "thinking", "thinking": "x", "signature": "forged"}


@pytest.mark.parametrize(
    ("upstream", "path", "body", "said"),
    [
        (DeepSeekUpstream(), "/chat/completions", {"messages": CHAT}, "must be passed back to the API."),
        (
            MoonshotUpstream(),
            "/chat/completions",
            {"messages": [*CHAT[:1], {**CALLED, "reasoning_content": ""}, *CHAT[2:]]},
            "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        ),
        (GoogleOpenAIUpstream(), "/chat/completions", {"messages": CHAT}, "is missing a thought_signature"),
        (
            ThinkingClaude(),
            "/v1/messages",
            {"model": "m", "max_tokens": 5, "thinking": THINKS, "tools": [TOOL], "messages": CLAUDE},
            "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
        ),
        (
            ThinkingClaude(),
            "/v1/messages",
            {
                "model": "m",
                "max_tokens": 5,
                "tools": [TOOL],
                "messages": [CLAUDE[0], {"role": "assistant", "content": [FORGED, USE]}, CLAUDE[2]],
            },
            "Invalid `signature` in `thinking` block",
        ),
        (ThinkingGemini(), "/v1/models/m:generateContent", {"contents": GEMINI}, "is missing a thought_signature"),
    ],
)
async def test_next_turn_without_its_thoughts_is_refused(
    upstream: Upstream, path: str, body: dict[str, Any], said: str
) -> None:
    headers = {"Authorization": "Bearer k", "anthropic-version": "2026-10-21", "x-goog-api-key": "k"}
    async with upstream, aiohttp.ClientSession() as session:
        response = await session.post(upstream.base_url + path, data=json.dumps(body), headers=headers)
        assert response.status == 400
        assert said in (await response.json())["error"]["message"]
