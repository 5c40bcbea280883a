"""The server that plays Anthropic satisfies Anthropic's own client.

Its client is imported where it is used: that takes seconds, which only the process that runs these tests should pay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.upstreams.anthropic import AnthropicReply, AnthropicUpstream, error

if TYPE_CHECKING:
    import anthropic

WEATHER: Any = {"name": "get_weather", "description": "The weather.", "input_schema": {"type": "object"}}
QUESTION: Any = {"role": "user", "content": "What is the weather?"}


@pytest.fixture
async def upstream() -> AsyncIterator[AnthropicUpstream]:
    async with AnthropicUpstream() as upstream:
        yield upstream


@pytest.fixture
async def client(upstream: AnthropicUpstream) -> AsyncIterator[anthropic.AsyncAnthropic]:
    import anthropic

    # Without the certificates of all authorities, which take long to load.
    http = anthropic.DefaultAsyncHttpxClient(verify=False)
    async with anthropic.AsyncAnthropic(
        api_key="secret", base_url=upstream.base_url, max_retries=0, http_client=http
    ) as client:
        yield client


async def ask(client: anthropic.AsyncAnthropic, *, stream: bool, **fields: Any) -> anthropic.types.Message:
    asked: dict[str, Any] = {"model": "claude-played", "max_tokens": 100, "messages": [QUESTION], **fields}
    if not stream:
        message: anthropic.types.Message = await client.messages.create(**asked)
        return message
    async with client.messages.stream(**asked) as events:
        return await events.get_final_message()


both_ways = pytest.mark.parametrize("stream", [True, False])


@both_ways
async def test_client_reads_text_and_usage(
    stream: bool, upstream: AnthropicUpstream, client: anthropic.AsyncAnthropic
) -> None:
    message = await ask(client, stream=stream, system="Be brief.", stop_sequences=["END"])
    [block] = message.content
    assert block.type == "text"
    assert (block.text, message.stop_reason) == ("Hello, world!", "end_turn")
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (11, 5, 7)
    assert upstream.requests[0].headers["anthropic-version"] == "2026-10-21"


@both_ways
async def test_client_reads_thoughts_and_calls(
    stream: bool, upstream: AnthropicUpstream, client: anthropic.AsyncAnthropic
) -> None:
    calls = [("get_weather", ['{"ci', 'ty":"Paris"}']), ("get_weather", [])]
    upstream.replies.append(
        AnthropicReply(thinking="Hm.", contents=["Let me see."], calls=calls, finish_reason="tool_use")
    )
    message = await ask(client, stream=stream, tools=[WEATHER], tool_choice={"type": "any"})
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    inputs = [block.input for block in message.content if block.type == "tool_use"]
    assert inputs == [{"city": "Paris"}, {}]
    assert message.stop_reason == "tool_use"


async def test_client_gives_results_back(upstream: AnthropicUpstream, client: anthropic.AsyncAnthropic) -> None:
    import anthropic

    upstream.replies.append(AnthropicReply(contents=[], calls=[("get_weather", ["{}"])], finish_reason="tool_use"))
    called = await ask(client, stream=False, tools=[WEATHER])
    result = {"type": "tool_result", "tool_use_id": "toolu_0", "content": "clear"}
    messages = [QUESTION, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    assert (await ask(client, stream=True, tools=[WEATHER], messages=messages)).stop_reason == "end_turn"
    with pytest.raises(anthropic.BadRequestError):
        await ask(client, stream=False, tools=[WEATHER], messages=messages[:2])


@pytest.mark.parametrize(
    ("status", "kind", "raised"),
    [
        (400, "invalid_request_error", "BadRequestError"),
        (401, "authentication_error", "AuthenticationError"),
        (429, "rate_limit_error", "RateLimitError"),
        (500, "api_error", "InternalServerError"),
        (529, "overloaded_error", "APIStatusError"),
    ],
)
@both_ways
async def test_client_raises_what_the_status_says(
    stream: bool,
    status: int,
    kind: str,
    raised: str,
    upstream: AnthropicUpstream,
    client: anthropic.AsyncAnthropic,
) -> None:
    import anthropic

    upstream.replies.append(error(status, kind, "No."))
    kinds: dict[str, type[anthropic.APIStatusError]] = vars(anthropic)
    with pytest.raises(kinds[raised]) as refusal:
        await ask(client, stream=stream)
    assert refusal.value.status_code == status


async def test_client_raises_an_error_within_a_stream(
    upstream: AnthropicUpstream, client: anthropic.AsyncAnthropic
) -> None:
    import anthropic

    overloaded = '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    upstream.replies.append(AnthropicReply(events=[overloaded]))
    with pytest.raises(anthropic.APIStatusError):
        await ask(client, stream=True)
