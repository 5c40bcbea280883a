"""The server that plays OpenAI (`tests/support/upstreams/openai.py`) satisfies OpenAI's own client."""

import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.support.upstreams.openai import Reply, Upstream

QUESTION: Any = [{"role": "user", "content": "What is the weather?"}]
WEATHER: Any = {"type": "function", "function": {"name": "get_weather"}}
CALL = {"id": "call_a", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}
CALL_IN_PIECES = [
    {"index": 0, **CALL, "function": {"name": "get_weather", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"city":'}},
    {"index": 0, "function": {"arguments": '"Paris"}'}},
]


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as upstream:
        yield upstream


@pytest.fixture
async def client(upstream: Upstream) -> AsyncIterator[openai.AsyncOpenAI]:
    # Without the certificates of all authorities, which take long to load.
    http = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        api_key="secret", base_url=upstream.base_url, max_retries=0, http_client=http
    ) as client:
        yield client


async def ask(client: openai.AsyncOpenAI, *, stream: bool, **fields: Any) -> ChatCompletion:
    asked: dict[str, Any] = {"model": "played", "messages": QUESTION, **fields}
    if not stream:
        completion: ChatCompletion = await client.chat.completions.create(**asked)
        return completion
    async with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
        return await events.get_final_completion()


both_ways = pytest.mark.parametrize("stream", [True, False])


@both_ways
async def test_client_reads_text_and_usage(stream: bool, client: openai.AsyncOpenAI) -> None:
    completion = await ask(client, stream=stream)
    [choice] = completion.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello, world!", "stop")
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (11, 7)


@both_ways
async def test_client_reads_calls(stream: bool, upstream: Upstream, client: openai.AsyncOpenAI) -> None:
    upstream.replies.append(
        Reply(contents=[], tool_calls=CALL_IN_PIECES, message_tool_calls=[CALL], finish_reason="tool_calls")
    )
    message = (await ask(client, stream=stream, tools=[WEATHER])).choices[0].message
    [call] = [call for call in message.tool_calls or () if call.type == "function"]
    assert (call.id, call.function.name) == ("call_a", "get_weather")
    assert json.loads(call.function.arguments) == {"city": "Paris"}


@both_ways
async def test_client_raises_what_the_status_says(stream: bool, upstream: Upstream, client: openai.AsyncOpenAI) -> None:
    upstream.replies.append(Reply(status=429, body='{"error":{"message":"No.","type":"x","param":null,"code":null}}'))
    with pytest.raises(openai.RateLimitError):
        await ask(client, stream=stream)


async def test_client_raises_an_error_within_a_stream(upstream: Upstream, client: openai.AsyncOpenAI) -> None:
    upstream.replies.append(Reply(events=['{"error":{"message":"No."}}']))
    with pytest.raises(openai.APIError):
        await ask(client, stream=True)
