"""Requests to a server that keeps to the rules of the Responses API, over a real socket."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.providers.base import ProviderCall
from services.router.providers.responses.provider import ResponsesProvider
from tests.services.router.providers.asking import CALL, WEATHER, changed, opened, pieces_of
from tests.support.upstreams.responses import ResponsesUpstream


def calling(model_name: str = "vendor-model", parameters: Mapping[str, Any] | None = None, **fields: Any) -> Any:
    call = changed(CALL, parameters_json=msgspec.json.encode(parameters) if parameters else b"", **fields)
    return replace(call, model_name=model_name)


async def asked(provider: ResponsesProvider, upstream: ResponsesUpstream, call: ProviderCall) -> Any:
    await pieces_of(provider, call)
    assert upstream.refused == []
    return upstream.requests[-1].json


async def test_request_says_what_the_call_has_and_stores_nothing(
    upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    assert await asked(provider, upstream, CALL) == {
        "model": "vendor-model",
        "input": [{"role": "user", "content": "Hi"}],
        "max_output_tokens": 50,
        "store": False,
        "stream": True,
    }
    whole = await asked(provider, upstream, replace(CALL, stream=False, is_limit_told=False))
    assert "stream" not in whole
    assert "max_output_tokens" not in whole
    assert upstream.requests[-1].headers["Authorization"] == "Bearer secret"


async def test_route_cannot_have_responses_stored(upstream: ResponsesUpstream) -> None:
    provider = opened(ResponsesProvider, upstream.base_url, extra_json=b'{"store":true,"metadata":{"a":"b"}}')
    request = await asked(provider, upstream, CALL)
    assert (request["store"], request["metadata"]) == (False, {"a": "b"})
    await provider.aclose()


async def test_limit_is_never_below_the_least_that_the_api_takes(
    upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    """vectorize-io/hindsight#58, braintrustdata/lingua#186."""
    assert (await asked(provider, upstream, replace(CALL, max_tokens=5)))["max_output_tokens"] == 16


async def test_parameters_have_their_places(upstream: ResponsesUpstream, provider: ResponsesProvider) -> None:
    call = calling("gpt-5.6-luna", {"reasoning_effort": "high", "verbosity": "low"})
    request = await asked(provider, upstream, call)
    assert (request["reasoning"], request["text"]) == ({"effort": "high"}, {"verbosity": "low"})
    assert call.ignored == []


async def test_nearest_effort_is_used_and_named(upstream: ResponsesUpstream, provider: ResponsesProvider) -> None:
    call = calling("gpt-6.1-sol", {"reasoning_effort": "none", "temperature": 0.2})
    assert (await asked(provider, upstream, call))["reasoning"] == {"effort": "low"}
    assert call.ignored == ["temperature", "reasoning_effort: low instead of none"]


async def test_parameters_that_the_api_does_not_have_are_named(
    upstream: ResponsesUpstream, provider: ResponsesProvider
) -> None:
    call = calling(parameters={"temperature": 0.2, "seed": 7, "stop": ["a"], "logit_bias": {"1": 2}, "top_p": 0.5})
    request = await asked(provider, upstream, call)
    assert (request["temperature"], request["top_p"]) == (0.2, 0.5)
    assert call.ignored == ["seed", "stop", "logit_bias"]


class TestTools:
    async def test_functions_are_not_strict_unless_the_client_says_so(
        self, upstream: ResponsesUpstream, provider: ResponsesProvider
    ) -> None:
        """langchain-ai/langchain#35885, open-webui/open-webui#27750: the API would make every parameter necessary."""
        tools = [
            {"type": "function", "function": {"name": "loose", "parameters": {"type": "object"}, "description": "L."}},
            {"type": "function", "function": {"name": "bare", "strict": True}},
        ]
        call = calling(tools_json=msgspec.json.encode(tools), parameters={"parallel_tool_calls": False})
        request = await asked(provider, upstream, call)
        closed = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        assert request["tools"] == [
            {
                "type": "function",
                "name": "loose",
                "parameters": {"type": "object"},
                "strict": False,
                "description": "L.",
            },
            {"type": "function", "name": "bare", "parameters": closed, "strict": True},
        ]
        assert request["parallel_tool_calls"] is False
        assert "tool_choice" not in request

    @pytest.mark.parametrize(
        ("choice", "sent"),
        [
            ("none", "none"),
            ("required", "required"),
            ({"type": "function", "function": {"name": "get_time"}}, {"type": "function", "name": "get_time"}),
            (
                {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "required",
                        "tools": [{"type": "function", "function": {"name": "get_time"}}],
                    },
                },
                {
                    "type": "allowed_tools",
                    "mode": "required",
                    "tools": [{"type": "function", "name": "get_time"}],
                },
            ),
        ],
    )
    async def test_choice_keeps_its_meaning_and_the_tools_their_order(
        self, choice: Any, sent: Any, upstream: ResponsesUpstream, provider: ResponsesProvider
    ) -> None:
        call = calling(tools_json=WEATHER, tool_choice_json=msgspec.json.encode(choice))
        request = await asked(provider, upstream, call)
        assert request["tool_choice"] == sent
        assert [tool["name"] for tool in request["tools"]] == ["get_weather", "get_time"]

    async def test_server_that_knows_no_such_choice_gets_these_tools_alone(self, upstream: ResponsesUpstream) -> None:
        provider = opened(ResponsesProvider, upstream.base_url)
        allowed = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
        choice = {"type": "allowed_tools", "allowed_tools": allowed}
        call = calling(tools_json=WEATHER, tool_choice_json=msgspec.json.encode(choice))
        request = await asked(provider, upstream, call)
        assert [tool["name"] for tool in request["tools"]] == ["get_time"]
        await provider.aclose()


class TestFormatOfTheAnswer:
    async def test_schema_keeps_its_bytes_and_is_not_strict_by_itself(
        self, upstream: ResponsesUpstream, provider: ResponsesProvider
    ) -> None:
        schema = b'{"type":"object","properties":{"z":{"type":"number"},"a":{"type":"number"}}}'
        for said, strict in ((b"", False), (b'"strict":true,', True)):
            answer_format = b'{"type":"json_schema","json_schema":{"name":"sum",%b"schema":%b}}' % (said, schema)
            call = changed(CALL, parameters_json=b'{"response_format":%b}' % answer_format)
            request = await asked(provider, upstream, call)
            assert request["text"]["format"] == {
                "type": "json_schema",
                "name": "sum",
                "strict": strict,
                "schema": msgspec.json.decode(schema),
            }
            assert schema in upstream.requests[-1].body

    async def test_any_object_is_a_format_too(self, upstream: ResponsesUpstream, provider: ResponsesProvider) -> None:
        """The API looks for the word in the messages, as chat completions do, and not in its instructions."""
        call = calling(
            parameters={"response_format": {"type": "json_object"}},
            messages_json=b'[{"role":"system","content":"Answer in JSON."},{"role":"user","content":"Hi"}]',
        )
        assert (await asked(provider, upstream, call))["text"] == {"format": {"type": "json_object"}}


class TestReasoningThatComesBack:
    async def test_it_is_asked_for_where_the_next_turn_may_need_it(
        self, upstream: ResponsesUpstream, provider: ResponsesProvider
    ) -> None:
        encrypted = ["reasoning.encrypted_content"]
        assert "include" not in await asked(provider, upstream, calling("gpt-5.6-luna"))
        assert (await asked(provider, upstream, calling("gpt-5.6-luna", tools_json=WEATHER)))["include"] == encrypted
        shown = await asked(provider, upstream, replace(calling("gpt-5.6-luna"), keeps_thoughts=True))
        assert (shown["include"], shown["reasoning"]) == (encrypted, {"summary": "auto"})

    async def test_model_that_is_known_not_to_reason_is_not_asked(
        self, upstream: ResponsesUpstream, provider: ResponsesProvider
    ) -> None:
        call = replace(calling("gpt-5-chat-latest", tools_json=WEATHER), keeps_thoughts=True)
        request = await asked(provider, upstream, call)
        assert "include" not in request
        assert "reasoning" not in request

    async def test_route_may_do_without(self, upstream: ResponsesUpstream) -> None:
        provider = opened(ResponsesProvider, upstream.base_url, reasoning_back=False)
        assert "include" not in await asked(provider, upstream, calling(tools_json=WEATHER))
        await provider.aclose()


class TestWhatTheRouteAdds:
    async def test_it_is_written_in_the_words_of_this_api(self, upstream: ResponsesUpstream) -> None:
        extra = b'{"reasoning_effort":"low","verbosity":"low","service_tier":"flex","seed":7,"max_tokens":99}'
        provider = opened(ResponsesProvider, upstream.base_url, extra_json=extra)
        call = calling("gpt-5.6-luna", {"reasoning_effort": "high"})
        request = await asked(provider, upstream, call)
        assert (request["reasoning"], request["text"], request["service_tier"], request["max_output_tokens"]) == (
            {"effort": "low"},
            {"verbosity": "low"},
            "flex",
            99,
        )
        assert "seed" not in request
        assert "reasoning_effort" in call.ignored
        await provider.aclose()

    async def test_effort_in_this_apis_own_words_is_the_routes_too(self, upstream: ResponsesUpstream) -> None:
        provider = opened(ResponsesProvider, upstream.base_url, extra_json=b'{"reasoning":{"effort":"low"}}')
        call = calling("gpt-5.6-luna", {"reasoning_effort": "high"})
        assert (await asked(provider, upstream, call))["reasoning"] == {"effort": "low"}
        assert call.ignored == ["reasoning_effort"]
        await provider.aclose()


async def test_requests_with_the_same_beginning_have_the_same_key_of_the_cache(upstream: ResponsesUpstream) -> None:
    provider = opened(ResponsesProvider, upstream.base_url, api_key="secret", prompt_cache_key=True)
    keys = [
        (await asked(provider, upstream, replace(CALL, cache_identity=identity))).get("prompt_cache_key")
        for identity in (b"a", b"a", b"b", b"")
    ]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] is None
    await provider.aclose()
