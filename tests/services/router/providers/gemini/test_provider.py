"""Requests to a server that keeps to Google's rules, over a real socket."""

from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.providers.base import ProviderCall, Timeouts
from services.router.providers.gemini.provider import GeminiProvider
from services.router.providers.translation.google_signatures import NO_SIGNATURE
from tests.services.router.providers.asking import (
    CALL,
    WEATHER,
    both_ways,
    changed,
    conversation,
    opened,
    pieces_of,
    text_of,
)
from tests.services.router.providers.past import USER, called, gave
from tests.support.upstreams.gemini import GeminiUpstream, error


async def asked(upstream: GeminiUpstream, call: ProviderCall, **extra: Any) -> Any:
    """Returns the call as upstream got and answered it."""
    provider = opened(
        GeminiProvider,
        upstream.base_url,
        Timeouts(),
        api_key="secret",
        version="v1beta",
        extra_json=msgspec.json.encode(extra or {}),
    )
    try:
        assert text_of(await pieces_of(provider, call)) == "Hello, world!"
    finally:
        await provider.aclose()
    return upstream.requests[-1].json


async def test_request_is_in_googles_words_and_asks_that_nothing_be_kept(upstream: GeminiUpstream) -> None:
    call = changed(
        conversation(
            {"role": "system", "content": "Our character."},
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": "One"},
            {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "Two \u00e9"}]},
        ),
        parameters_json=b'{"stop":"END","temperature":1.5,"top_p":0.5,"seed":4294967297,"presence_penalty":1,'
        b'"frequency_penalty":-1}',
    )
    extra = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}, "store": True}
    assert await asked(upstream, call, **extra) == {
        "store": False,
        "systemInstruction": {"parts": [{"text": "Our character."}, {"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "One"}, {"text": "Two \u00e9"}]}],
        "generationConfig": {
            "maxOutputTokens": 50,
            "stopSequences": ["END"],
            "temperature": 1.5,
            "topP": 0.5,
            "seed": 1,
            "presencePenalty": 1.0,
            "frequencyPenalty": -1.0,
            "thinkingConfig": {"thinkingLevel": "LOW"},
        },
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "get_weather",
                        "description": "The weather.",
                        "parametersJsonSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
                    },
                    {"name": "get_time"},
                ]
            }
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
    }
    [request] = upstream.requests
    assert request.path == "/v1beta/models/vendor-model:streamGenerateContent"
    assert request.headers["x-goog-api-key"] == "secret"


@both_ways
async def test_nothing_is_to_be_kept_whatever_the_way(
    call: ProviderCall, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    await pieces_of(provider, call)
    assert upstream.requests[0].json["store"] is False


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        (b"", {"mode": "AUTO"}),
        (b'"none"', {"mode": "NONE"}),
        (b'"required"', {"mode": "ANY"}),
        (
            b'{"type":"function","function":{"name":"get_time"}}',
            {"mode": "ANY", "allowedFunctionNames": ["get_time"]},
        ),
    ],
)
async def test_choice_of_tools_is_kept(choice: bytes, sent: dict[str, Any], upstream: GeminiUpstream) -> None:
    request = await asked(upstream, changed(CALL, tools_json=WEATHER, tool_choice_json=choice))
    assert request["toolConfig"]["functionCallingConfig"] == sent


@pytest.mark.parametrize(
    ("wanted", "sent"),
    [
        ({"type": "text"}, {}),
        ({"type": "json_object"}, {"responseMimeType": "application/json"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
            {"responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
        ),
    ],
)
async def test_form_of_the_answer_goes_along(
    wanted: dict[str, Any], sent: dict[str, Any], upstream: GeminiUpstream
) -> None:
    request = await asked(upstream, changed(CALL, parameters_json=msgspec.json.encode({"response_format": wanted})))
    assert request["generationConfig"] == {"maxOutputTokens": 50, **sent}


@pytest.mark.parametrize(
    ("model_name", "effort", "thinking", "ignored"),
    [
        ("gemini-3-pro", "minimal", {"thinkingLevel": "LOW"}, ["reasoning_effort: low instead of minimal"]),
        ("gemini-3-pro", "medium", {"thinkingLevel": "HIGH"}, ["reasoning_effort: high instead of medium"]),
        ("models/gemini-3-pro", "high", {"thinkingLevel": "HIGH"}, []),
        ("gemini-3-pro", "none", {"thinkingLevel": "LOW"}, ["reasoning_effort: low instead of none"]),
        ("gemini-3.6-flash", "minimal", {"thinkingLevel": "MINIMAL"}, []),
        ("gemini-3.8-flash", "medium", {"thinkingLevel": "MEDIUM"}, []),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}, []),
        ("gemini-2.5-flash", "medium", {"thinkingBudget": 8192}, []),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 512}, ["reasoning_effort: minimal instead of none"]),
        ("gemini-2.0-flash", "high", None, ["reasoning_effort"]),
    ],
)
async def test_effort_is_translated_where_there_is_a_word_for_it(
    model_name: str, effort: str, thinking: dict[str, Any] | None, ignored: list[str], upstream: GeminiUpstream
) -> None:
    parameters_json = msgspec.json.encode({"reasoning_effort": effort})
    call = changed(CALL, model_name=model_name.removeprefix("models/"), parameters_json=parameters_json)
    request = await asked(upstream, call)
    assert request["generationConfig"].get("thinkingConfig") == thinking
    assert call.ignored == ignored


@pytest.mark.parametrize(
    ("model_name", "tokens", "thinking", "ignored"),
    [
        ("gemini-2.5-flash", 3000, {"thinkingBudget": 3000}, []),
        ("gemini-2.5-flash", 90_000, {"thinkingBudget": 24_576}, ["reasoning.max_tokens: 24576 instead of 90000"]),
        (
            "gemini-3.8-flash",
            3000,
            {"thinkingLevel": "MEDIUM"},
            ["reasoning.max_tokens: reasoning_effort medium instead of 3000"],
        ),
    ],
)
async def test_number_of_tokens_is_translated(
    model_name: str, tokens: int, thinking: dict[str, Any], ignored: list[str], upstream: GeminiUpstream
) -> None:
    parameters_json = msgspec.json.encode({"reasoning": {"max_tokens": tokens}})
    call = changed(CALL, model_name=model_name, parameters_json=parameters_json)
    assert (await asked(upstream, call))["generationConfig"]["thinkingConfig"] == thinking
    assert call.ignored == ignored


class TestLevelsThatTheModelRefuses:
    """egoist/chatwise-releases#1206, can1357/oh-my-pi#10543: each model has levels of its own."""

    async def test_chat_is_served_with_another_level_and_later_ones_at_once(self, upstream: GeminiUpstream) -> None:
        provider = opened(GeminiProvider, upstream.base_url, api_key="secret", version="v1")
        message = "Thinking level MEDIUM is not supported for this model. Please retry with other thinking level."
        upstream.replies.append(error(400, "INVALID_ARGUMENT", message))
        for times in (2, 1):
            before = len(upstream.requests)
            call = changed(CALL, model_name="gemini-9-pro", parameters_json=b'{"reasoning_effort":"medium"}')
            await pieces_of(provider, call)
            assert len(upstream.requests) - before == times
            config = upstream.requests[-1].json["generationConfig"]
            assert config["thinkingConfig"] == {"thinkingLevel": "HIGH"}
            assert call.ignored == ["reasoning_effort: high instead of medium"]
        assert list(provider.learned("gemini-9-pro", None)) == ["efforts low/high"]
        await provider.aclose()


async def test_what_is_not_sent_as_it_came_is_told(upstream: GeminiUpstream) -> None:
    parameters = {
        "temperature": 1.5, "top_p": 0.5, "seed": 2**40, "presence_penalty": 1, "logit_bias": {"1": 1},
        "verbosity": "low", "reasoning_effort": "high", "stop": ["a"], "response_format": {"type": "text"},
        "parallel_tool_calls": False,
    }  # fmt: skip
    call = changed(CALL, parameters_json=msgspec.json.encode(parameters))
    await asked(upstream, call, generationConfig={"topP": 0.9, "thinkingConfig": {"thinkingLevel": "LOW"}})
    assert call.ignored == ["top_p", "logit_bias", "verbosity", "reasoning_effort"]


async def test_results_of_all_calls_make_a_turn_of_their_own(upstream: GeminiUpstream) -> None:
    call = conversation(
        USER,
        called(("call_a", "get_weather", '{"city":"Paris"}'), ("call_b", "get_time", ""), content="Well."),
        gave("call_b", "noon"),
        gave("call_a", '{"sky":"clear"}'),
        {"role": "user", "content": "And?"},
    )
    _, model, results, user = (await asked(upstream, call))["contents"]
    assert model == {
        "role": "model",
        "parts": [
            {"text": "Well."},
            {
                "functionCall": {"id": "call_a", "name": "get_weather", "args": {"city": "Paris"}},
                "thoughtSignature": NO_SIGNATURE,
            },
            {"functionCall": {"id": "call_b", "name": "get_time", "args": {}}, "thoughtSignature": NO_SIGNATURE},
        ],
    }
    assert results == {
        "role": "user",
        "parts": [
            {
                "functionResponse": {
                    "id": "call_a",
                    "name": "get_weather",
                    "response": {"output": '{"sky":"clear"}'},
                }
            },
            {"functionResponse": {"id": "call_b", "name": "get_time", "response": {"output": "noon"}}},
        ],
    }
    assert user == {"role": "user", "parts": [{"text": "And?"}]}


async def test_signature_that_the_client_brings_back_is_given_back(upstream: GeminiUpstream) -> None:
    call = called(("call_a", "get_time", "{}"))
    call["tool_calls"][0]["extra_content"] = {"google": {"thought_signature": "c2ln"}}
    request = await asked(upstream, conversation(USER, call, gave("call_a", "noon")))
    assert request["contents"][1]["parts"][0]["thoughtSignature"] == "c2ln"


@pytest.mark.parametrize("extra", [None, 7, {"google": 7}, {"google": {"thought_signature": None}}])
async def test_signature_that_is_none_is_left_aside(extra: Any, upstream: GeminiUpstream) -> None:
    call = called(("call_a", "get_time", "{}"))
    call["tool_calls"][0]["extra_content"] = extra
    request = await asked(upstream, conversation(USER, call, gave("call_a", "noon")))
    assert request["contents"][1]["parts"][0]["thoughtSignature"] == NO_SIGNATURE


async def test_conversation_that_cannot_be_told_is_refused_as_the_clients_mistake(
    upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    with pytest.raises(LegatoError) as refusal:
        await pieces_of(provider, conversation(USER, called(("a", "get_time", "{}"))))
    assert (refusal.value.reason, refusal.value.param) == ("REQUEST_INVALID", "messages")
    assert not upstream.requests
