"""The server that plays Google satisfies Google's own client, which is imported where it is used: that takes long."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.upstreams.gemini import GeminiReply, GeminiUpstream, error

if TYPE_CHECKING:
    from google import genai
    from google.genai import types

# Google's client inherits from a class that does not like it.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

WEATHER: Any = {
    "function_declarations": [
        {"name": "get_weather", "description": "The weather.", "parameters_json_schema": {"type": "object"}}
    ]
}
CALLS: list[tuple[str, dict[str, Any]]] = [("get_weather", {"city": "Paris"}), ("get_weather", {})]


@pytest.fixture
async def upstream() -> AsyncIterator[GeminiUpstream]:
    async with GeminiUpstream() as upstream:
        yield upstream


@pytest.fixture
async def client(upstream: GeminiUpstream) -> AsyncIterator[genai.Client]:
    from google import genai
    from google.genai import types

    # Without the certificates of all authorities, which take long to load.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    options = types.HttpOptions(
        base_url=upstream.base_url,
        client_args={"verify": context},
        async_client_args={"verify": context, "ssl": context},
    )
    client = genai.Client(api_key="secret", http_options=options)
    yield client
    await client.aio.aclose()
    client.close()


async def ask(
    client: genai.Client, *, stream: bool, contents: Any = "What is the weather?", **config: Any
) -> list[types.GenerateContentResponse]:
    from google.genai import types

    config["automatic_function_calling"] = types.AutomaticFunctionCallingConfig(disable=True)
    asked: dict[str, Any] = {
        "model": "gemini-3.8-flash",
        "contents": contents,
        "config": types.GenerateContentConfig(**config),
    }
    if not stream:
        return [await client.aio.models.generate_content(**asked)]
    return [response async for response in await client.aio.models.generate_content_stream(**asked)]


def parts_of(responses: list[types.GenerateContentResponse]) -> list[types.Part]:
    candidates = [candidate for response in responses for candidate in response.candidates or ()]
    return [part for candidate in candidates if candidate.content for part in candidate.content.parts or ()]


both_ways = pytest.mark.parametrize("stream", [True, False])


@both_ways
async def test_client_reads_text_and_usage(stream: bool, upstream: GeminiUpstream, client: genai.Client) -> None:
    from google.genai import types

    responses = await ask(
        client,
        stream=stream,
        system_instruction="Be brief.",
        max_output_tokens=100,
        stop_sequences=["END"],
        store=False,
    )
    assert "".join(part.text or "" for part in parts_of(responses)) == "Hello, world!"
    candidates = responses[-1].candidates
    assert candidates is not None
    assert candidates[0].finish_reason is types.FinishReason.STOP
    usage = responses[-1].usage_metadata
    assert usage is not None
    assert (usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count) == (18, 4, 25)
    assert upstream.requests[0].json["store"] is False
    assert upstream.requests[0].path.startswith("/v1/models/gemini-3.8-flash:")


@both_ways
async def test_client_reads_thoughts_and_calls(stream: bool, upstream: GeminiUpstream, client: genai.Client) -> None:
    from google.genai import types

    upstream.replies.append(GeminiReply(thinking="Hm.", contents=[], calls=CALLS, call_ids=True))
    calling = types.FunctionCallingConfig(
        mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=["get_weather"]
    )
    responses = await ask(
        client, stream=stream, tools=[WEATHER], tool_config=types.ToolConfig(function_calling_config=calling)
    )
    thought, *calls = parts_of(responses)
    assert (thought.text, thought.thought) == ("Hm.", True)
    assert [part.function_call.args for part in calls if part.function_call] == [{"city": "Paris"}, {}]
    assert [part.thought_signature for part in calls] == [b"signature"] * 2


async def test_client_gives_results_back(upstream: GeminiUpstream, client: genai.Client) -> None:
    from google.genai import errors, types

    upstream.replies.append(GeminiReply(contents=[], calls=CALLS))
    [response] = await ask(client, stream=False, tools=[WEATHER])
    assert response.candidates is not None
    question = types.Content(role="user", parts=[types.Part(text="What is the weather?")])
    called = response.candidates[0].content
    results = types.Content(
        role="user",
        parts=[types.Part.from_function_response(name=name, response={"output": "clear"}) for name, _ in CALLS],
    )
    [*_, last] = await ask(client, stream=True, tools=[WEATHER], contents=[question, called, results])
    assert last.candidates is not None
    with pytest.raises(errors.ClientError):
        await ask(client, stream=False, tools=[WEATHER], contents=[question, called])


@pytest.mark.parametrize(
    ("status", "kind", "raised"),
    [
        (400, "INVALID_ARGUMENT", "ClientError"),
        (429, "RESOURCE_EXHAUSTED", "ClientError"),
        (500, "INTERNAL", "ServerError"),
        (503, "UNAVAILABLE", "ServerError"),
    ],
)
@both_ways
async def test_client_raises_what_the_status_says(
    stream: bool,
    status: int,
    kind: str,
    raised: str,
    upstream: GeminiUpstream,
    client: genai.Client,
) -> None:
    from google.genai import errors

    upstream.replies.append(error(status, kind, "No."))
    with pytest.raises(getattr(errors, raised)) as refusal:
        await ask(client, stream=stream)
    assert (refusal.value.code, refusal.value.status) == (status, kind)


async def test_client_raises_an_error_within_a_stream(upstream: GeminiUpstream, client: genai.Client) -> None:
    from google.genai import errors

    upstream.replies.append(GeminiReply(events=['{"error":{"code":503,"message":"No.","status":"UNAVAILABLE"}}']))
    with pytest.raises(errors.ServerError):
        await ask(client, stream=True)
