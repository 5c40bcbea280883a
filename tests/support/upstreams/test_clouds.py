"""The servers that play clouds satisfy Anthropic's own clients for these, in both ways of answering."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.upstreams.anthropic import AnthropicReply
from tests.support.upstreams.bedrock import KEY_ID, REGION, SECRET_KEY, BedrockUpstream, exception, reply_of
from tests.support.upstreams.token_server import TokenServer
from tests.support.upstreams.vertex import VertexClaudeUpstream

HELLO: Any = {"max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
async def tokens() -> AsyncIterator[TokenServer]:
    async with TokenServer() as tokens:
        yield tokens


async def text_streamed(client: Any, model: str) -> str:
    async with client.messages.stream(model=model, **HELLO) as stream:
        return "".join([text async for text in stream.text_stream])


async def test_client_for_bedrock_is_content() -> None:
    from anthropic import APIError, AsyncAnthropicBedrock

    model = "us.anthropic.claude-opus-4-6-v1:0"
    keys: Any = {"aws_access_key": KEY_ID, "aws_secret_key": SECRET_KEY, "aws_region": REGION}
    async with BedrockUpstream() as upstream:
        client = AsyncAnthropicBedrock(base_url=upstream.base_url, max_retries=0, **keys)
        answer = await client.messages.create(model=model, **HELLO)
        assert answer.content[0].text == "Hello, world!"
        assert await text_streamed(client, model) == "Hello, world!"
        upstream.replies.append(reply_of([exception("throttlingException", "Too many tokens")]))
        with pytest.raises(APIError, match="Too many tokens"):
            await text_streamed(client, model)
        await client.close()


async def test_client_for_vertex_is_content(tokens: TokenServer) -> None:
    from anthropic import AsyncAnthropicVertex

    tokens.issued["canary"] = tokens.now_s() + 3600
    model = "claude-opus-4-6@20260115"
    async with VertexClaudeUpstream(tokens) as upstream:
        client = AsyncAnthropicVertex(
            region="northamerica-northeast1",
            project_id="project",
            access_token="canary",
            base_url=f"http://127.0.0.1:{upstream.port}/v1",
            max_retries=0,
        )
        upstream.replies.append(AnthropicReply(thinking="Hm."))
        answer = await client.messages.create(model=model, **HELLO)
        assert answer.content[-1].text == "Hello, world!"
        assert await text_streamed(client, model) == "Hello, world!"
        await client.close()
