"""Requests to a server that keeps to Anthropic's rules, over a real socket."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.providers.abilities import Abilities
from services.router.providers.anthropic.platforms import VERSION_2023, VERSION_2026
from services.router.providers.anthropic.provider import AnthropicProvider
from services.router.providers.base import ProviderCall, Timeouts
from tests.services.router.providers.asking import (
    CALL,
    WEATHER,
    changed,
    conversation,
    opened,
    pieces_of,
    text_of,
)
from tests.services.router.providers.past import USER, called, gave
from tests.support.upstreams.anthropic import AnthropicUpstream


async def asked(upstream: AnthropicUpstream, call: ProviderCall, version: str = VERSION_2026, **extra: Any) -> Any:
    """Returns the call as upstream got and answered it."""
    provider = opened(
        AnthropicProvider,
        upstream.base_url,
        Timeouts(),
        api_key="secret",
        version=version,
        prompt_caching=False,
        extra_json=msgspec.json.encode(extra or {}),
    )
    try:
        assert text_of(await pieces_of(provider, call)) == "Hello, world!"
    finally:
        await provider.aclose()
    return upstream.requests[-1].json


async def test_request_is_in_anthropics_words(upstream: AnthropicUpstream) -> None:
    call = changed(
        conversation(
            {"role": "system", "content": "Our character."},
            {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
            {"role": "user", "content": "One"},
            {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "Two \u00e9"}]},
            {"role": "assistant", "content": "\n\n"},
            {"role": "system", "content": "From now on in French."},
        ),
        parameters_json=b'{"stop":"END","temperature":1.5,"top_p":0.5,"seed":1,"presence_penalty":1}',
    )
    assert await asked(upstream, call) == {
        "model": "vendor-model",
        "max_tokens": 50,
        "stream": True,
        "system": [
            {"type": "text", "text": text} for text in ("Our character.", "Be", "brief.", "From now on in French.")
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two \u00e9"}]}
        ],
        "tools": [
            {
                "name": "get_weather",
                "description": "The weather.",
                "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
            {"name": "get_time", "input_schema": {"type": "object", "properties": {}}},
        ],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["END"],
    }


@pytest.mark.parametrize(
    ("model", "stays"),
    [
        ("claude-opus-5", True),
        ("claude-opus-4-8-20260528", True),
        ("claude-sonnet-5-5", True),
        ("claude-haiku-6-20270101", True),
        ("claude-opus-4-20250514", False),
        ("claude-opus-4-7", False),
        ("claude-sonnet-5", False),
        ("claude-3-5-haiku-20241022", False),
        ("vendor-model", False),
    ],
)
async def test_system_messages_stay_where_the_model_takes_them(
    model: str, stays: bool, upstream: AnthropicUpstream
) -> None:
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"},
        {"role": "system", "content": "From now on in French."},
        {"role": "user", "content": "Three"},
    ]
    request = await asked(upstream, replace(conversation(*said), model_name=model))
    inside = ["From now on in French."] if stays else []
    assert [block["text"] for block in request["system"]] == [
        "Be brief.",
        *([] if stays else ["From now on in French."]),
    ]
    texts = [(message["role"], block["text"]) for message in request["messages"] for block in message["content"]]
    assert texts == [("user", "One"), ("assistant", "Two"), ("user", "Three"), *(("system", text) for text in inside)]


async def test_thinking_is_left_out_after_results_that_a_system_message_follows(upstream: AnthropicUpstream) -> None:
    said = [USER, called(("a", "get_time", "{}")), gave("a", "noon"), {"role": "system", "content": "Be brief."}]
    abilities = Abilities(thinking="budget", system_inside=True)
    call = replace(conversation(*said), model_name="claude-opus-5", abilities=abilities)
    request = await asked(upstream, call, thinking={"type": "enabled", "budget_tokens": 10})
    assert (request["messages"][-1]["role"], "thinking" in request) == ("system", False)


async def test_conversation_that_the_model_began_is_one_that_the_user_opened(upstream: AnthropicUpstream) -> None:
    """Pages greet their visitors, and histories are cut anywhere."""
    greeted = conversation({"role": "assistant", "content": "How can I help?"}, {"role": "user", "content": "Hi"})
    assert (await asked(upstream, greeted))["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "How can I help?"}]},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]


async def test_sampling_is_sent_to_the_version_that_has_it(upstream: AnthropicUpstream) -> None:
    call = changed(CALL, parameters_json=b'{"temperature":1.5,"top_p":0.5,"stop":["a","b"]}')
    request = await asked(upstream, call, VERSION_2023)
    assert (request["temperature"], request["top_p"], request["stop_sequences"]) == (1.0, 0.5, ["a", "b"])
    headers = upstream.requests[0].headers
    assert (headers["anthropic-version"], headers["x-api-key"]) == ("2023-06-01", "secret")
    assert "Authorization" not in headers
    request = await asked(upstream, call, VERSION_2026)
    assert not {"temperature", "top_p"} & set(request)
    headers = upstream.requests[1].headers
    assert (headers["anthropic-version"], headers["Authorization"]) == ("2026-10-21", "Bearer secret")
    assert "x-api-key" not in headers


@pytest.mark.parametrize(
    ("effort", "sent", "ignored"),
    [
        ("minimal", "low", ["reasoning_effort: low instead of minimal"]),
        ("low", "low", []),
        ("medium", "medium", []),
        ("high", "high", []),
        ("max", "high", ["reasoning_effort: high instead of max"]),
        ("none", None, ["reasoning_effort"]),
        ("ultra", None, ["reasoning_effort"]),
    ],
)
async def test_effort_is_translated_where_there_is_a_word_for_it(
    effort: str, sent: str | None, ignored: list[str], upstream: AnthropicUpstream
) -> None:
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}}
    parameters = {"reasoning_effort": effort, "response_format": schema}
    call = changed(CALL, parameters_json=msgspec.json.encode(parameters))
    request = await asked(upstream, call)
    assert request["output_config"].get("effort") == sent
    assert request["output_config"]["format"]["schema"] == {"type": "object", "additionalProperties": False}
    assert call.ignored == ignored


@pytest.mark.parametrize(
    ("version", "extra", "ignored"),
    [
        (VERSION_2026, {}, {"temperature", "top_p", "seed", "presence_penalty", "logit_bias", "verbosity"}),
        # The highest temperature is lower.
        (VERSION_2023, {}, {"temperature", "seed", "presence_penalty", "logit_bias", "verbosity"}),
        (VERSION_2023, {"top_p": 0.9, "output_config": {"effort": "low"}},
         {"temperature", "top_p", "seed", "presence_penalty", "logit_bias", "verbosity", "reasoning_effort"}),
    ],
)  # fmt: skip
async def test_what_is_not_sent_as_it_came_is_told(
    version: str, extra: dict[str, Any], ignored: set[str], upstream: AnthropicUpstream
) -> None:
    parameters = {
        "temperature": 1.5, "top_p": 0.5, "seed": 7, "presence_penalty": 1, "logit_bias": {"1": 1}, "verbosity": "low",
        "reasoning_effort": "high", "stop": ["a"],
    }  # fmt: skip
    call = changed(CALL, parameters_json=msgspec.json.encode(parameters))
    await asked(upstream, call, version, **extra)
    assert set(call.ignored) == ignored


async def test_blank_stops_are_left_out_and_named(upstream: AnthropicUpstream) -> None:
    call = changed(CALL, parameters_json=b'{"stop":["\\n","END",""," \\t"]}')
    assert (await asked(upstream, call))["stop_sequences"] == ["END"]
    assert call.ignored == ["stop"]
    call = changed(CALL, parameters_json=b'{"stop":"\\n\\n"}')
    assert "stop_sequences" not in await asked(upstream, call)
    assert call.ignored == ["stop"]


@pytest.mark.parametrize(
    ("choice", "parameters", "sent"),
    [
        (b"", b"", {"type": "auto"}),
        (b'"none"', b'{"parallel_tool_calls":false}', {"type": "none"}),
        (b'"required"', b"", {"type": "any"}),
        (b'{"type":"function","function":{"name":"get_time"}}', b"", {"type": "tool", "name": "get_time"}),
        (b'"auto"', b'{"parallel_tool_calls":false}', {"type": "auto", "disable_parallel_tool_use": True}),
        (b'"required"', b'{"parallel_tool_calls":false}', {"type": "any", "disable_parallel_tool_use": True}),
        (b'"auto"', b'{"parallel_tool_calls":true}', {"type": "auto"}),
    ],
)
async def test_choice_of_tools_is_kept(
    choice: bytes, parameters: bytes, sent: dict[str, Any], upstream: AnthropicUpstream
) -> None:
    call = changed(CALL, tools_json=WEATHER, tool_choice_json=choice, parameters_json=parameters)
    assert (await asked(upstream, call))["tool_choice"] == sent


async def test_results_of_all_calls_make_one_turn_with_what_the_user_says_next(upstream: AnthropicUpstream) -> None:
    call = conversation(
        USER,
        called(
            ("call_a", "get_weather", '{"city":"Paris"}'), ("functions.get_time:1", "get_time", ""), content="Well."
        ),
        gave("functions.get_time:1", [{"type": "text", "text": "ten"}, {"type": "text", "text": " past"}]),
        gave("call_a", ""),
        {"role": "user", "content": "And?"},
    )
    _, model, user = (await asked(upstream, call))["messages"]
    text, first, second = model["content"]
    assert (model["role"], text) == ("assistant", {"type": "text", "text": "Well."})
    assert first == {"type": "tool_use", "id": "call_a", "name": "get_weather", "input": {"city": "Paris"}}
    assert (second["name"], second["input"]) == ("get_time", {})
    assert user == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "call_a", "content": ""},
            {"type": "tool_result", "tool_use_id": second["id"], "content": "ten past"},
            {"type": "text", "text": "And?"},
        ],
    }


async def test_functions_called_before_are_defined_even_where_none_may_be_called(upstream: AnthropicUpstream) -> None:
    call = changed(conversation(USER, called(("a", "get_time", "{}")), gave("a", "noon")), tools_json=b"")
    request = await asked(upstream, call)
    assert request["tools"] == [{"name": "get_time", "input_schema": {"type": "object", "properties": {}}}]
    assert request["tool_choice"] == {"type": "none"}


async def test_schema_for_the_answer_goes_along(upstream: AnthropicUpstream) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    call = changed(CALL, parameters_json=msgspec.json.encode({"response_format": wanted}))
    request = await asked(upstream, call, output_config={"effort": "low"})
    assert request["output_config"] == {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}


async def test_json_without_a_schema_is_asked_for_in_words_and_named(upstream: AnthropicUpstream) -> None:
    call = changed(CALL, parameters_json=b'{"response_format":{"type":"json_object"}}')
    request = await asked(upstream, call)
    assert "output_config" not in request
    assert [block["text"] for block in request["messages"][0]["content"]] == [
        "Hi",
        "Answer with one JSON object and nothing else: no words around it and no code fence.",
    ]
    assert call.ignored == ["response_format: an instruction instead of a grammar"]


class TestSchemasThatTheApiRefuses:
    """BerriAI/litellm#19444: "For 'integer' type, properties maximum, minimum are not supported"."""

    async def test_their_words_are_said_in_the_description(self, upstream: AnthropicUpstream) -> None:
        schema = {
            "type": "object",
            "properties": {
                "stars": {"type": "integer", "minimum": 1, "maximum": 5, "description": "A rating."},
                "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 2},
            },
            "required": ["stars"],
        }
        fitted = {
            "type": "object",
            "properties": {
                "stars": {"type": "integer", "description": "A rating. (minimum: 1; maximum: 5)"},
                "tags": {
                    "type": "array",
                    "items": {"type": "string", "description": "(minLength: 1)"},
                    "description": "(minItems: 2)",
                },
            },
            "required": ["stars"],
            "additionalProperties": False,
        }
        wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
        call = changed(CALL, parameters_json=msgspec.json.encode({"response_format": wanted}))
        assert (await asked(upstream, call))["output_config"]["format"]["schema"] == fitted
        function = {"name": "rate", "parameters": schema}
        for strict, sent in ((True, fitted), (False, schema)):
            tools = [{"type": "function", "function": {**function, "strict": strict}}]
            request = await asked(upstream, changed(CALL, tools_json=msgspec.json.encode(tools)))
            assert request["tools"][0]["input_schema"] == sent
            assert request["tools"][0].get("strict", False) is strict

    async def test_recursive_schema_is_asked_for_in_words(self, upstream: AnthropicUpstream) -> None:
        schema = {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}}
        wanted = {"type": "json_schema", "json_schema": {"schema": schema}}
        call = changed(CALL, parameters_json=msgspec.json.encode({"response_format": wanted}))
        request = await asked(upstream, call)
        assert "output_config" not in request
        assert msgspec.json.encode(schema).decode() in request["messages"][0]["content"][1]["text"]
        assert call.ignored == ["response_format: an instruction instead of a grammar"]
        tools = [{"type": "function", "function": {"name": "walk", "parameters": schema, "strict": True}}]
        request = await asked(upstream, changed(CALL, tools_json=msgspec.json.encode(tools)))
        assert "strict" not in request["tools"][0]


async def test_thinking_is_left_out_where_it_would_be_refused(upstream: AnthropicUpstream) -> None:
    thinking = {"type": "adaptive"}
    plain = await asked(upstream, changed(CALL, tools_json=WEATHER), thinking=thinking)
    forced = await asked(upstream, changed(CALL, tools_json=WEATHER, tool_choice_json=b'"required"'), thinking=thinking)
    result = conversation(USER, called(("a", "get_time", "{}")), gave("a", "noon"))
    after_a_call = await asked(upstream, result, thinking={"type": "enabled", "budget_tokens": 10})
    assert plain["thinking"] == thinking
    assert "thinking" not in forced
    assert "thinking" not in after_a_call
    # Where the model decides, it need not have thought before.
    assert (await asked(upstream, result, thinking=thinking))["thinking"] == thinking
    begun = await asked(upstream, conversation(USER, {"role": "assistant", "content": "Once"}), thinking=thinking)
    assert "thinking" not in begun


@pytest.mark.parametrize(("max_tokens", "thinks"), [(1000, False), (4096, False), (4097, True)])
async def test_thinking_that_leaves_no_room_for_the_answer_is_left_out(
    max_tokens: int, thinks: bool, upstream: AnthropicUpstream
) -> None:
    thinking = {"type": "enabled", "budget_tokens": 4096}
    request = await asked(upstream, replace(CALL, max_tokens=max_tokens), thinking=thinking)
    assert request.get("thinking") == (thinking if thinks else None)


@pytest.mark.parametrize(
    ("thinking", "sampling"),
    [
        ({"type": "enabled", "budget_tokens": 1024}, {}),
        ({"type": "adaptive"}, {}),
        ({"type": "disabled"}, {"temperature": 0.2, "top_p": 0.5}),
        # Thinking is left out then.
        ({"type": "enabled", "budget_tokens": 8192}, {"temperature": 0.2, "top_p": 0.5}),
    ],
)
async def test_sampling_is_left_to_a_model_that_thinks(
    thinking: dict[str, Any], sampling: dict[str, float], upstream: AnthropicUpstream
) -> None:
    call = changed(CALL, max_tokens=4096, parameters_json=b'{"temperature":0.2,"top_p":0.5}')
    request = await asked(upstream, call, VERSION_2023, thinking=thinking)
    assert {name: request[name] for name in ("temperature", "top_p") if name in request} == sampling


async def test_conversation_that_cannot_be_told_is_refused_as_the_clients_mistake(
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    with pytest.raises(LegatoError) as refusal:
        await pieces_of(provider, conversation(USER, called(("a", "get_time", "{}"))))
    assert (refusal.value.reason, refusal.value.param) == ("REQUEST_INVALID", "messages")
    assert not upstream.requests
