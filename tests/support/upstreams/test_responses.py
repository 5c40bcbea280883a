"""The server that plays OpenAI's Responses (`tests/support/upstreams/responses.py`) satisfies OpenAI's own client."""

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.support.upstreams.responses import ResponsesReply, ResponsesUpstream, encrypted

QUESTION: Any = [{"role": "user", "content": "What is the weather?"}]
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}


@pytest.fixture
async def upstream() -> AsyncIterator[ResponsesUpstream]:
    async with ResponsesUpstream() as upstream:
        yield upstream


@pytest.fixture
async def client(upstream: ResponsesUpstream) -> AsyncIterator[openai.AsyncOpenAI]:
    # Without the certificates of all authorities, which take long to load.
    http = openai.DefaultAsyncHttpxClient(verify=False)
    async with openai.AsyncOpenAI(
        api_key="secret", base_url=upstream.base_url, max_retries=0, http_client=http
    ) as client:
        yield client


async def ask(client: openai.AsyncOpenAI, *, stream: bool, **fields: Any) -> Response:
    asked: dict[str, Any] = {"model": "played", "input": QUESTION, "store": False, **fields}
    if not stream:
        response: Response = await client.responses.create(**asked)
        return response
    async with client.responses.stream(**asked) as events:
        async for _ in events:
            pass
        return await events.get_final_response()


both_ways = pytest.mark.parametrize("stream", [True, False])


@both_ways
async def test_client_reads_text_and_usage(stream: bool, client: openai.AsyncOpenAI) -> None:
    response = await ask(client, stream=stream)
    assert (response.output_text, response.status) == ("Hello, world!", "completed")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.input_tokens_details.cached_tokens) == (18, 5)


@both_ways
async def test_client_reads_calls_and_reasoning(
    stream: bool, client: openai.AsyncOpenAI, upstream: ResponsesUpstream
) -> None:
    upstream.replies.append(
        ResponsesReply(reasoning=["Hm.", "So."], contents=[], calls=[("get_weather", ['{"city":', '"Paris"}'])])
    )
    thought, called = (await ask(client, stream=stream, tools=[WEATHER])).output
    assert thought.type == "reasoning"
    assert ([part.text for part in thought.summary], thought.encrypted_content) == (
        ["Hm.", "So."],
        encrypted("thought"),
    )
    assert called.type == "function_call"
    assert (called.name, called.arguments) == ("get_weather", '{"city":"Paris"}')


async def test_client_is_told_why_an_answer_is_incomplete(
    client: openai.AsyncOpenAI, upstream: ResponsesUpstream
) -> None:
    upstream.replies.append(ResponsesReply(finish_reason="max_output_tokens"))
    response = await ask(client, stream=False)
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seed": 7}, "Unknown parameter: 'seed'."),
        ({"max_output_tokens": 5}, "Expected a value >= 16, but got 5"),
        ({"input": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}, "Invalid value: 'text'."),
        (
            {"input": [*QUESTION, {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}]},
            "No tool output found for function call a.",
        ),
        (
            {"input": [*QUESTION, {"type": "function_call_output", "call_id": "a", "output": "1"}]},
            "No tool call found for function call output with call_id a.",
        ),
        ({"tools": [{**WEATHER, "strict": True}]}, "'additionalProperties' is required to be supplied and to be false"),
    ],
)
async def test_client_is_refused_what_breaks_a_rule(
    fields: dict[str, Any], message: str, client: openai.AsyncOpenAI, upstream: ResponsesUpstream
) -> None:
    """router-for-me/CLIProxyAPI#2368, microsoft/vscode#320060: calls and results come in pairs."""
    asked: dict[str, Any] = {"model": "played", "input": QUESTION, "store": False}
    extra = {name: fields[name] for name in fields if name == "seed"}
    given = {name: fields[name] for name in fields if name != "seed"}
    with pytest.raises(openai.BadRequestError, match=message.replace("(", r"\(")):
        await client.responses.create(**{**asked, **given}, extra_body=extra)
    assert len(upstream.refused) == 1
