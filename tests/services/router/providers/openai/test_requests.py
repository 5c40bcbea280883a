"""Requests to a server that speaks as OpenAI does, over a real socket."""

import msgspec

from services.router.providers.openai.message_dialects import short_id
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.harness import QUICK
from tests.services.router.providers.asking import CALL, WHOLE_CALL, changed, opened, pieces_of
from tests.services.router.providers.past import USER, called, gave
from tests.support.upstreams.openai import Upstream


async def test_request_carries_the_clients_bytes_as_they_are(upstream: Upstream, provider: OpenAIProvider) -> None:
    tools = b'[ {"type":"function","function":{"name":"f", "x":1.50}} ]'
    choice = b'{"type": "function",  "function": {"name": "f"}}'
    parameters = b' {"temperature":0.10, "stop":["a"]} '
    await pieces_of(provider, changed(CALL, tools_json=tools, tool_choice_json=choice, parameters_json=parameters))
    [request] = upstream.requests
    assert request.body == (
        b'{"model":"vendor-model","messages":[{"role":"user", "content":"Hi"}],"max_tokens":50,"tools":' + tools
        + b',"tool_choice":' + choice + b',"temperature":0.10, "stop":["a"]'
        + b',"stream":true,"stream_options":{"include_usage":true}}'
    )  # fmt: skip
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Content-Type"] == "application/json"


async def test_request_for_one_piece_asks_for_no_stream(upstream: Upstream, provider: OpenAIProvider) -> None:
    await pieces_of(provider, changed(WHOLE_CALL, tool_choice_json=b'"auto"', parameters_json=b"{ }"))
    assert upstream.requests[0].json == {
        "model": "vendor-model",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 50,
    }


async def test_route_decides_the_name_of_the_limit_and_adds_its_fields(upstream: Upstream) -> None:
    provider = opened(
        OpenAIProvider,
        upstream.base_url,
        QUICK,
        output_field="max_completion_tokens",
        extra_json=b'{"provider":{"zdr":true}}',
    )
    await pieces_of(provider)
    await provider.aclose()
    body = upstream.requests[0].json
    assert (body["max_completion_tokens"], body["provider"]) == (50, {"zdr": True})
    assert "max_tokens" not in body
    assert "Authorization" not in upstream.requests[0].headers


async def test_what_the_route_sets_is_not_the_clients_to_choose(upstream: Upstream) -> None:
    provider = opened(OpenAIProvider, upstream.base_url, QUICK, extra_json=b'{"temperature":1,"store":false}')
    call = changed(CALL, parameters_json=b'{"temperature":0.5,"seed":7}')
    await pieces_of(provider, call)
    await provider.aclose()
    assert upstream.requests[0].body.count(b"temperature") == 1
    assert (upstream.requests[0].json["temperature"], upstream.requests[0].json["seed"]) == (1, 7)
    assert call.ignored == ["temperature"]


async def test_route_may_ask_for_short_ids_of_calls(upstream: Upstream) -> None:
    provider = opened(OpenAIProvider, upstream.base_url, QUICK, short_call_ids=True)
    messages = msgspec.json.encode([USER, called(("call_a", "f", "{}")), gave("call_a", "x")])
    await pieces_of(provider, changed(CALL, messages_json=messages))
    await provider.aclose()
    _, call, result = upstream.requests[0].json["messages"]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == short_id("call_a")


async def test_route_may_ask_for_content_in_strings(upstream: Upstream) -> None:
    provider = opened(OpenAIProvider, upstream.base_url, QUICK, string_content=True)
    messages = msgspec.json.encode([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    await pieces_of(provider, changed(CALL, messages_json=messages))
    await provider.aclose()
    assert upstream.requests[0].json["messages"] == [{"role": "user", "content": "Hi"}]


async def test_big_prompt_arrives_whole(upstream: Upstream, provider: OpenAIProvider) -> None:
    messages = msgspec.json.encode([{"role": "user", "content": "word " * 800_000}])
    await pieces_of(provider, changed(CALL, messages_json=messages))
    assert messages in upstream.requests[0].body
