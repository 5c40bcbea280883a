"""The provider against a server that keeps to Anthropic's rules, over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.chassis.errors import LegatoError
from services.router.providers.anthropic import VERSION_2023, VERSION_2026, AnthropicProvider
from services.router.providers.base import Call, CannotDo, Failure, ProviderUsage, Timeouts
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
from tests.upstreams.anthropic import AnthropicReply, AnthropicUpstream, error

WHOLE_CALL = replace(CALL, stream=False)
both_ways = pytest.mark.parametrize("call", [CALL, WHOLE_CALL], ids=["stream", "whole"])


@pytest.fixture
async def upstream() -> AsyncIterator[AnthropicUpstream]:
    async with AnthropicUpstream() as upstream:
        yield upstream


@pytest.fixture
async def provider(upstream: AnthropicUpstream) -> AsyncIterator[AnthropicProvider]:
    provider = AnthropicProvider(upstream.base_url, Timeouts(), api_key="secret", version=VERSION_2026)
    yield provider
    await provider.aclose()


async def asked(upstream: AnthropicUpstream, call: Call, version: str = VERSION_2026, **extra: Any) -> Any:
    """What such a call is upstream, where it was answered."""
    provider = AnthropicProvider(upstream.base_url, Timeouts(), api_key="secret", version=version, extra=extra)
    try:
        assert text_of(await pieces_of(provider, call)) == "Hello, world!"
    finally:
        await provider.aclose()
    return upstream.requests[-1].json


def conversation(*messages: dict[str, Any]) -> Call:
    return replace(CALL, messages_json=msgspec.json.encode(messages), tools_json=WEATHER)


@both_ways
async def test_answer_arrives_whole_with_its_usage(
    call: Call, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    pieces = await pieces_of(provider, call)
    assert (text_of(pieces), finish_of(pieces)) == ("Hello, world!", "stop")
    # What was read from the cache and what was written to it is not in the vendor's own count of the input.
    assert pieces[-1].usage == ProviderUsage(11 + 5 + 2, 7, 5)


@both_ways
async def test_calls_come_with_their_arguments_and_thoughts_stay_hidden(
    call: Call, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    calls = [("get_weather", ['{"ci', 'ty":"Par', 'is"}']), ("get_time", [])]
    upstream.replies.append(
        AnthropicReply(thinking="Hm.", contents=["Let me see."], calls=calls, finish_reason="tool_use")
    )
    pieces = await pieces_of(provider, replace(call, tools_json=WEATHER))
    assert (text_of(pieces), hidden_of(pieces), finish_of(pieces)) == ("Let me see.", "Hm.", "tool_calls")
    assert calls_of(pieces) == [("get_weather", {"city": "Paris"}), ("get_time", {})]


async def test_blocks_that_are_written_at_once_are_kept_apart(
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    def block(index: int, kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": f"content_block_{kind}", "index": index, **fields}

    def piece(index: int, partial_json: str) -> dict[str, Any]:
        return block(index, "delta", delta={"type": "input_json_delta", "partial_json": partial_json})

    events: list[dict[str, Any]] = [
        block(3, "start", content_block={"type": "tool_use", "id": "a", "name": "get_weather", "input": {}}),
        block(4, "start", content_block={"type": "tool_use", "id": "b", "name": "get_time", "input": {"zone": "UTC"}}),
        block(5, "start", content_block={"type": "something_new", "delta": 7}),
        piece(3, '{"city":'),
        block(4, "stop"),
        {"type": "something_new", "delta": 7, "index": 3},
        piece(3, '"Paris"}'),
        block(3, "stop"),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]
    upstream.replies.append(AnthropicReply(events=[msgspec.json.encode(event).decode() for event in events]))
    pieces = await pieces_of(provider, CALL)
    assert calls_of(pieces) == [("get_weather", {"city": "Paris"}), ("get_time", {"zone": "UTC"})]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("something_new", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
    ],
)
@both_ways
async def test_every_reason_to_stop_has_one_of_openais(
    call: Call, said: str, told: str, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(finish_reason=said))
    assert finish_of(await pieces_of(provider, call)) == told


@both_ways
async def test_usage_that_is_odd_or_missing_breaks_no_answer(
    call: Call, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(usage={"input_tokens": True, "output_tokens": -1}))
    assert (await pieces_of(provider, call))[-1].usage == ProviderUsage(None, 1 if call.stream else None, None)


async def test_request_is_in_anthropics_words(upstream: AnthropicUpstream) -> None:
    call = replace(
        conversation(
            {"role": "system", "content": "Our character."},
            {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
            {"role": "user", "content": "One"},
            {"role": "user", "content": [{"type": "text", "text": ""}, {"type": "text", "text": "Two \u00e9"}]},
            {"role": "assistant", "content": ""},
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


async def test_sampling_is_sent_to_the_version_that_has_it(upstream: AnthropicUpstream) -> None:
    call = replace(CALL, parameters_json=b'{"temperature":1.5,"top_p":0.5,"stop":["a","b"]}')
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
    call = replace(CALL, tools_json=WEATHER, tool_choice_json=choice, parameters_json=parameters)
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
    call = replace(conversation(USER, called(("a", "get_time", "{}")), gave("a", "noon")), tools_json=b"")
    request = await asked(upstream, call)
    assert request["tools"] == [{"name": "get_time", "input_schema": {"type": "object", "properties": {}}}]
    assert request["tool_choice"] == {"type": "none"}


async def test_schema_for_the_answer_goes_along(upstream: AnthropicUpstream) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    call = replace(CALL, parameters_json=msgspec.json.encode({"response_format": wanted}))
    request = await asked(upstream, call, output_config={"effort": "low"})
    assert request["output_config"] == {"format": {"type": "json_schema", "schema": schema}, "effort": "low"}


async def test_json_without_a_schema_is_what_it_cannot_do(
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    call = replace(CALL, parameters_json=b'{"response_format":{"type":"json_object"}}')
    failure = await failure_of(provider, call)
    assert isinstance(failure, CannotDo)
    assert failure.param == "response_format"
    assert not upstream.requests


async def test_thinking_is_left_out_where_it_would_be_refused(upstream: AnthropicUpstream) -> None:
    thinking = {"type": "adaptive"}
    plain = await asked(upstream, replace(CALL, tools_json=WEATHER), thinking=thinking)
    forced = await asked(upstream, replace(CALL, tools_json=WEATHER, tool_choice_json=b'"required"'), thinking=thinking)
    after_a_call = await asked(
        upstream, conversation(USER, called(("a", "get_time", "{}")), gave("a", "noon")), thinking=thinking
    )
    assert plain["thinking"] == thinking
    assert "thinking" not in forced
    assert "thinking" not in after_a_call


async def test_answer_that_may_be_long_is_streamed_whatever_was_asked_for(upstream: AnthropicUpstream) -> None:
    assert "stream" not in await asked(upstream, replace(WHOLE_CALL, max_tokens=21_333))
    assert (await asked(upstream, replace(WHOLE_CALL, max_tokens=21_334)))["stream"] is True


async def test_conversation_that_cannot_be_told_is_refused_as_the_clients_mistake(
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    with pytest.raises(LegatoError) as refusal:
        await pieces_of(provider, conversation(USER, called(("a", "get_time", "{}"))))
    assert (refusal.value.reason, refusal.value.param) == ("REQUEST_INVALID", "messages")
    assert not upstream.requests


@pytest.mark.parametrize(
    ("status", "kind", "message", "failure"),
    [
        (400, "invalid_request_error", "canary", Failure.REFUSED),
        (400, "invalid_request_error", "prompt is too long: 207791 tokens > 200000 maximum", Failure.CONTEXT),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 1 + 2 > 2",
            Failure.CONTEXT,
        ),
        (400, "invalid_request_error", "Your credit balance is too low", Failure.PROVIDER),
        (401, "authentication_error", "", Failure.PROVIDER),
        (402, "billing_error", "", Failure.PROVIDER),
        (403, "permission_error", "", Failure.PROVIDER),
        (404, "not_found_error", "", Failure.PROVIDER),
        (413, "request_too_large", "", Failure.CONTEXT),
        (429, "rate_limit_error", "", Failure.BUSY),
        (429, "enforced_spend_limit_reached", "", Failure.PROVIDER),
        (500, "api_error", "canary", Failure.PROVIDER),
        (503, "api_error", "", Failure.BUSY),
        (504, "timeout_error", "", Failure.PROVIDER),
        (529, "overloaded_error", "", Failure.BUSY),
    ],
)
@both_ways
async def test_status_tells_what_the_failure_means(
    call: Call,
    status: int,
    kind: str,
    message: str,
    failure: Failure,
    upstream: AnthropicUpstream,
    provider: AnthropicProvider,
) -> None:
    upstream.replies.append(error(status, kind, message, {"retry-after": "7"}))
    failed = await failure_of(provider, call)
    assert (failed.failure, failed.http_status) == (failure, status)
    assert failed.retry_after_s == (7 if failure is Failure.BUSY else None)
    assert "canary" not in str(failed)


IN_STREAM = '{"type":"error","error":{"type":"%s","message":"canary"}}'
BEGUN = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}'


@pytest.mark.parametrize(
    ("kind", "failure"),
    [
        ("overloaded_error", Failure.BUSY),
        ("rate_limit_error", Failure.BUSY),
        ("api_error", Failure.PROVIDER),
        ("timeout_error", Failure.PROVIDER),
        ("something_new", Failure.PROVIDER),
        ("invalid_request_error", Failure.REFUSED),
    ],
)
async def test_error_as_the_first_event_means_what_its_status_would(
    kind: str, failure: Failure, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(events=[IN_STREAM % kind]))
    failed = await failure_of(provider, CALL)
    assert failed.failure is failure
    assert "canary" not in str(failed)


BREAKS = {
    "error event": AnthropicReply(events=[BEGUN, IN_STREAM % "overloaded_error"]),
    "no stop reason": AnthropicReply(finish_reason=None),
    "no stop reason, no stop": AnthropicReply(finish_reason=None, done=False),
    "cut": AnthropicReply(cut_after=4, event_delay_s=0.01),
    "garbage": AnthropicReply(writes=[f"data: {BEGUN}\n\n", "data: <html>\n\n"]),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_stream_that_breaks_is_passed_on_so_far_and_then_fails(
    name: str, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(BREAKS[name])
    pieces, failure = await broken_off(provider, CALL)
    assert text_of(pieces).startswith("Hello")
    assert not any(piece.last for piece in pieces)
    assert "canary" not in str(failure)


async def test_stream_that_ends_after_its_reason_is_whole(
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(done=False))
    assert finish_of(await pieces_of(provider, CALL)) == "stop"


@pytest.mark.parametrize("body", ["<html>", "{}", IN_STREAM % "api_error", '{"type":"message","content":[]}'])
async def test_answer_in_one_piece_that_is_none_fails(
    body: str, upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    upstream.replies.append(AnthropicReply(body=body))
    assert "canary" not in str(await failure_of(provider, WHOLE_CALL))


async def test_silence_is_a_failure_and_closes_the_connection(upstream: AnthropicUpstream) -> None:
    provider = AnthropicProvider(upstream.base_url, QUICK, api_key="secret", version=VERSION_2026)
    upstream.replies.append(AnthropicReply(stall_after=3))
    assert (await failure_of(provider, CALL)).what == "did not answer in time"
    await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted
    await provider.aclose()


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (WHOLE_CALL, AnthropicReply(delay_s=60)),
        (CALL, AnthropicReply(delay_s=60)),
        (CALL, AnthropicReply(first_event_delay_s=60)),
        (CALL, AnthropicReply(stall_after=4)),
    ],
)
async def test_cancelling_closes_the_connection(
    call: Call, reply: AnthropicReply, upstream: AnthropicUpstream, provider: AnthropicProvider
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
    upstream: AnthropicUpstream, provider: AnthropicProvider
) -> None:
    for call in (CALL, WHOLE_CALL, CALL):
        await pieces_of(provider, call)
    assert len({request.connection for request in upstream.requests}) == 1
