"""The provider against a server that keeps to Google's rules, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.providers.base import Call, CannotDo, Failure, ProviderUsage, Timeouts
from services.router.providers.gemini import NO_SIGNATURE, GeminiProvider
from tests.services.router.harness import QUICK
from tests.services.router.providers.asking import (
    CALL,
    WEATHER,
    broken_off,
    calls_of,
    failure_of,
    finish_of,
    hidden_of,
    pieces_of,
    text_of,
)
from tests.services.router.providers.past import USER, called, gave
from tests.upstreams.gemini import GeminiReply, GeminiUpstream, error

WHOLE_CALL = replace(CALL, stream=False)
both_ways = pytest.mark.parametrize("call", [CALL, WHOLE_CALL], ids=["stream", "whole"])

CALLS: list[tuple[str, dict[str, Any]]] = [("get_weather", {"city": "Paris"}), ("get_time", {})]


@pytest.fixture
async def upstream() -> AsyncIterator[GeminiUpstream]:
    async with GeminiUpstream() as upstream:
        yield upstream


@pytest.fixture
async def provider(upstream: GeminiUpstream) -> AsyncIterator[GeminiProvider]:
    provider = GeminiProvider(upstream.base_url, Timeouts(), api_key="secret", version="v1")
    yield provider
    await provider.aclose()


async def asked(upstream: GeminiUpstream, call: Call, **extra: Any) -> Any:
    """What such a call is upstream, where it was answered."""
    provider = GeminiProvider(upstream.base_url, Timeouts(), api_key="secret", version="v1beta", extra=extra)
    try:
        assert text_of(await pieces_of(provider, call)) == "Hello, world!"
    finally:
        await provider.aclose()
    return upstream.requests[-1].json


def conversation(*messages: dict[str, Any]) -> Call:
    return replace(CALL, messages_json=msgspec.json.encode(messages), tools_json=WEATHER)


@both_ways
async def test_answer_arrives_whole_with_its_usage(
    call: Call, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    pieces = await pieces_of(provider, call)
    assert (text_of(pieces), finish_of(pieces)) == ("Hello, world!", "stop")
    # What it thought is not in the vendor's own count of what it said; what was cached is in that of the prompt.
    assert pieces[-1].usage == ProviderUsage(18, 4 + 3, 5)


@both_ways
@pytest.mark.parametrize("call_ids", [True, False])
async def test_calls_come_with_their_arguments_and_thoughts_stay_hidden(
    call_ids: bool, call: Call, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(thinking="Hm.", contents=["Let me see."], calls=CALLS, call_ids=call_ids))
    pieces = await pieces_of(provider, replace(call, tools_json=WEATHER))
    assert (text_of(pieces), hidden_of(pieces), finish_of(pieces)) == ("Let me see.", "Hm.", "stop")
    assert calls_of(pieces) == CALLS


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
    ],
)
@both_ways
async def test_every_reason_to_stop_has_one_of_openais(
    call: Call, said: str, told: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(finish_reason=said))
    assert finish_of(await pieces_of(provider, call)) == told


@pytest.mark.parametrize("said", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "SOMETHING_NEW"])
@both_ways
async def test_end_that_is_no_answer_is_a_failure(
    call: Call, said: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(contents=[], finish_reason=said))
    assert (await failure_of(provider, call)).failure is Failure.PROVIDER


@both_ways
async def test_prompt_that_is_blocked_ends_as_filtered(
    call: Call, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    blocked = '{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":9}}'
    upstream.replies.append(GeminiReply(events=[blocked]) if call.stream else GeminiReply(body=blocked))
    pieces = await pieces_of(provider, call)
    assert (text_of(pieces), finish_of(pieces)) == ("", "content_filter")
    assert pieces[-1].usage == ProviderUsage(9, None, None)


async def test_responses_of_every_shape_are_understood(upstream: GeminiUpstream, provider: GeminiProvider) -> None:
    upstream.replies.append(
        GeminiReply(
            events=[
                '{"usageMetadata":{"promptTokenCount":4}}',
                '{"candidates":[{}]}',
                '{"candidates":[{"content":{}}]}',
                '{"candidates":[{"content":{"parts":[{"text":""},{"newKind":7},{"text":"Yes","thoughtSignature":"x"}]}}]}',
                '{"candidates":[{"content":null,"finishReason":"MAX_TOKENS"}]}',
                '{"candidates":[],"usageMetadata":{"candidatesTokenCount":1,"toolUsePromptTokenCount":2,"x":[]}}',
            ]
        )
    )
    pieces = await pieces_of(provider, CALL)
    assert (text_of(pieces), finish_of(pieces)) == ("Yes", "length")
    assert pieces[-1].usage == ProviderUsage(6, 1, None)


@both_ways
async def test_usage_that_is_odd_or_missing_breaks_no_answer(
    call: Call, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(usage=None))
    assert (await pieces_of(provider, call))[-1].usage is None


async def test_request_is_in_googles_words_and_asks_that_nothing_be_kept(upstream: GeminiUpstream) -> None:
    call = replace(
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
    call: Call, upstream: GeminiUpstream, provider: GeminiProvider
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
    request = await asked(upstream, replace(CALL, tools_json=WEATHER, tool_choice_json=choice))
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
    request = await asked(upstream, replace(CALL, parameters_json=msgspec.json.encode({"response_format": wanted})))
    assert request["generationConfig"] == {"maxOutputTokens": 50, **sent}


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


async def test_function_name_that_google_has_no_place_for_is_what_it_cannot_do(
    upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    tools = b'[{"type":"function","function":{"name":"2d_plot"}}]'
    failure = await failure_of(provider, replace(CALL, tools_json=tools))
    assert isinstance(failure, CannotDo)
    assert failure.param == "tools"
    assert not upstream.requests


async def test_conversation_that_cannot_be_told_is_refused_as_the_clients_mistake(
    upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    with pytest.raises(LegatoError) as refusal:
        await pieces_of(provider, conversation(USER, called(("a", "get_time", "{}"))))
    assert (refusal.value.reason, refusal.value.param) == ("REQUEST_INVALID", "messages")
    assert not upstream.requests


RETRY_INFO = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13s"}]
NO_ROOM = "The input token count (3475108) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("status", "kind", "message", "failure"),
    [
        (400, "INVALID_ARGUMENT", "canary", Failure.REFUSED),
        (400, "INVALID_ARGUMENT", NO_ROOM, Failure.CONTEXT),
        (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", Failure.PROVIDER),
        (400, "FAILED_PRECONDITION", "User location is not supported.", Failure.PROVIDER),
        (401, "UNAUTHENTICATED", "", Failure.PROVIDER),
        (402, "RESOURCE_EXHAUSTED", "", Failure.PROVIDER),
        (403, "PERMISSION_DENIED", "", Failure.PROVIDER),
        (404, "NOT_FOUND", "", Failure.PROVIDER),
        (429, "RESOURCE_EXHAUSTED", "", Failure.BUSY),
        (499, "CANCELLED", "", Failure.PROVIDER),
        (500, "INTERNAL", "canary", Failure.PROVIDER),
        (503, "UNAVAILABLE", "", Failure.BUSY),
        (504, "DEADLINE_EXCEEDED", "", Failure.PROVIDER),
    ],
)
@both_ways
async def test_status_tells_what_the_failure_means(
    call: Call,
    status: int,
    kind: str,
    message: str,
    failure: Failure,
    upstream: GeminiUpstream,
    provider: GeminiProvider,
) -> None:
    upstream.replies.append(error(status, kind, message, RETRY_INFO))
    failed = await failure_of(provider, call)
    assert (failed.failure, failed.http_status) == (failure, status)
    assert failed.retry_after_s == (13 if failure is Failure.BUSY else None)
    assert "canary" not in str(failed)


IN_STREAM = '{"error":{"code":%d,"message":"canary","status":"X"}}'
BEGUN = '{"candidates":[{"content":{"parts":[{"text":"Hello"}]}}]}'


@pytest.mark.parametrize("form", ["%s", "[%s]"])
@pytest.mark.parametrize(
    ("status", "failure"), [(503, Failure.BUSY), (429, Failure.BUSY), (500, Failure.PROVIDER), (400, Failure.REFUSED)]
)
async def test_error_as_the_first_event_means_what_its_status_would(
    status: int, failure: Failure, form: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(events=[form % (IN_STREAM % status)]))
    failed = await failure_of(provider, CALL)
    assert failed.failure is failure
    assert "canary" not in str(failed)


BREAKS = {
    "error event": GeminiReply(events=[BEGUN, IN_STREAM % 503]),
    "error without data": GeminiReply(writes=[f"data: {BEGUN}\r\n\r\n", IN_STREAM % 503 + "\r\n"]),
    "no reason": GeminiReply(finish_reason=None),
    "call that went wrong": GeminiReply(finish_reason="MALFORMED_FUNCTION_CALL"),
    "cut": GeminiReply(cut_after=2, event_delay_s=0.01),
    "garbage": GeminiReply(events=[BEGUN, "<html>"]),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_stream_that_breaks_is_passed_on_so_far_and_then_fails(
    name: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(BREAKS[name])
    pieces, failure = await broken_off(provider, CALL)
    assert text_of(pieces).startswith("Hello")
    assert not any(piece.last for piece in pieces)
    assert "canary" not in str(failure)


@pytest.mark.parametrize("body", ["<html>", "{}", "[]", IN_STREAM % 500, f"[{IN_STREAM % 500}]"])
async def test_answer_in_one_piece_that_is_none_fails(
    body: str, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(GeminiReply(body=body))
    assert "canary" not in str(await failure_of(provider, WHOLE_CALL))


async def test_silence_is_a_failure_and_closes_the_connection(upstream: GeminiUpstream) -> None:
    provider = GeminiProvider(upstream.base_url, QUICK, api_key="secret", version="v1")
    upstream.replies.append(GeminiReply(stall_after=2))
    assert (await failure_of(provider, CALL)).what == "did not answer in time"
    await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted
    await provider.aclose()


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (WHOLE_CALL, GeminiReply(delay_s=60)),
        (CALL, GeminiReply(delay_s=60)),
        (CALL, GeminiReply(first_event_delay_s=60)),
        (CALL, GeminiReply(stall_after=2)),
    ],
)
async def test_cancelling_closes_the_connection(
    call: Call, reply: GeminiReply, upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    upstream.replies.append(reply)
    reading = asyncio.create_task(pieces_of(provider, call))
    request = await upstream.received()
    await asyncio.sleep(0.05)
    reading.cancel()
    async with asyncio.timeout(10):
        await request.ended.wait()
    assert request.aborted


async def test_connection_is_used_again_after_a_whole_answer(
    upstream: GeminiUpstream, provider: GeminiProvider
) -> None:
    for call in (CALL, WHOLE_CALL, CALL):
        await pieces_of(provider, call)
    assert len({request.connection for request in upstream.requests}) == 1
