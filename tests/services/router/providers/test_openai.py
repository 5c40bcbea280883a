"""The provider against a real socket."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from services.router.providers.base import Call, Failure, ProviderError, ProviderUsage, Timeouts
from services.router.providers.http import MOST_EVENTS_A_PIECE
from services.router.providers.openai import OpenAIProvider
from services.router.providers.short_ids import short_id
from tests.services.router.harness import QUICK
from tests.services.router.providers.asking import CALL, broken_off, failure_of, pieces_of, text_of
from tests.services.router.providers.past import USER, called, gave
from tests.upstream import Reply, Upstream

WHOLE_CALL = replace(CALL, stream=False)


@pytest.fixture
async def provider(upstream: Upstream) -> AsyncIterator[OpenAIProvider]:
    provider = OpenAIProvider(upstream.base_url, Timeouts(), api_key="secret")
    yield provider
    await provider.aclose()


@pytest.fixture
async def quick(upstream: Upstream) -> AsyncIterator[OpenAIProvider]:
    provider = OpenAIProvider(upstream.base_url, QUICK)
    yield provider
    await provider.aclose()


async def test_stream_arrives_whole_with_its_usage(upstream: Upstream, provider: OpenAIProvider) -> None:
    pieces = await pieces_of(provider)
    assert text_of(pieces) == "Hello, world!"
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["stop"]
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1].usage == ProviderUsage(11, 7, None)


async def test_answer_in_one_piece(upstream: Upstream, provider: OpenAIProvider) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 3}}
    upstream.replies.append(Reply(usage=usage, finish_reason="length"))
    [piece] = await pieces_of(provider, WHOLE_CALL)
    assert (piece.contents, piece.finish_reason, piece.last) == (["Hello, world!"], "length", True)
    assert piece.usage == ProviderUsage(5, 0, 3)


async def test_request_carries_the_clients_bytes_as_they_are(upstream: Upstream, provider: OpenAIProvider) -> None:
    tools = b'[ {"type":"function","function":{"name":"f", "x":1.50}} ]'
    choice = b'{"type": "function",  "function": {"name": "f"}}'
    parameters = b' {"temperature":0.10, "stop":["a"]} '
    await pieces_of(provider, replace(CALL, tools_json=tools, tool_choice_json=choice, parameters_json=parameters))
    [request] = upstream.requests
    assert request.body == (
        b'{"model":"vendor-model","messages":[{"role":"user", "content":"Hi"}],"max_tokens":50,"tools":' + tools
        + b',"tool_choice":' + choice + b',"temperature":0.10, "stop":["a"]'
        + b',"stream":true,"stream_options":{"include_usage":true}}'
    )  # fmt: skip
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Content-Type"] == "application/json"


async def test_request_for_one_piece_asks_for_no_stream(upstream: Upstream, provider: OpenAIProvider) -> None:
    await pieces_of(provider, replace(WHOLE_CALL, tool_choice_json=b'"auto"', parameters_json=b"{ }"))
    assert upstream.requests[0].json == {
        "model": "vendor-model",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 50,
    }


async def test_route_decides_the_name_of_the_limit_and_adds_its_fields(upstream: Upstream) -> None:
    provider = OpenAIProvider(
        upstream.base_url, QUICK, output_field="max_completion_tokens", extra_json=b'{"provider":{"zdr":true}}'
    )
    await pieces_of(provider)
    await provider.aclose()
    body = upstream.requests[0].json
    assert (body["max_completion_tokens"], body["provider"]) == (50, {"zdr": True})
    assert "max_tokens" not in body
    assert "Authorization" not in upstream.requests[0].headers


async def test_route_may_ask_for_short_ids_of_calls(upstream: Upstream) -> None:
    provider = OpenAIProvider(upstream.base_url, QUICK, short_call_ids=True)
    messages = msgspec.json.encode([USER, called(("call_a", "f", "{}")), gave("call_a", "x")])
    await pieces_of(provider, replace(CALL, messages_json=messages))
    await provider.aclose()
    _, call, result = upstream.requests[0].json["messages"]
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == short_id("call_a")


async def test_events_of_one_read_make_one_piece(upstream: Upstream, provider: OpenAIProvider) -> None:
    upstream.replies.append(Reply(contents=["a", "b", "c"], at_once=True))
    [piece] = await pieces_of(provider)
    assert piece.contents == ["a", "b", "c"]
    assert piece.last


async def test_many_events_of_one_read_make_pieces_of_a_bounded_size(
    upstream: Upstream, provider: OpenAIProvider
) -> None:
    words = [f"{number} " for number in range(5 * MOST_EVENTS_A_PIECE)]
    upstream.replies.append(Reply(contents=words, at_once=True))
    pieces = await pieces_of(provider)
    assert max(len(piece.contents) for piece in pieces) <= MOST_EVENTS_A_PIECE
    assert text_of(pieces) == "".join(words)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]


async def test_text_after_a_tool_call_stays_after_it(upstream: Upstream, provider: OpenAIProvider) -> None:
    call = {"index": 0, "id": "call_a", "function": {"name": "f", "arguments": "{}"}}
    deltas: list[dict[str, Any]] = [{"content": "before"}, {"tool_calls": [call]}, {"content": "after"}]
    events = [msgspec.json.encode({"choices": [{"delta": delta}]}).decode() for delta in deltas]
    end = '{"choices":[{"delta":{},"finish_reason":"stop"}]}'
    upstream.replies.append(Reply(events=[*events, end], at_once=True))
    first, second = await pieces_of(provider)
    assert (first.contents, len(first.tool_calls), second.contents) == (["before"], 1, ["after"])


async def test_dialects_are_understood(upstream: Upstream, provider: OpenAIProvider) -> None:
    upstream.replies.append(
        Reply(
            writes=[
                ': OPENROUTER PROCESSING\r\n\r\ndata:{"choices":[]}\r\n\r\n',
                'data: {"choices":[{"delta":{"content":null,"reasoning_content":"hm"}}],"error":null}\n\n',
                'data: {"choices":[{"delta":{"content":[{"type":"text","text":"parts"}]},"finish_reason":""}]}\n\n',
                'data: {"choices":[{"delta":{"refusal":" no"},"finish_reason":"eos","x":7}],"usage":null}\n\n',
                'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":null}}\n\n',
            ]
        )
    )
    pieces = await pieces_of(provider)
    assert text_of(pieces) == "parts no"
    assert "".join(piece.hidden for piece in pieces) == "hm"
    assert pieces[-1].usage == ProviderUsage(1, None, None)


async def test_server_may_answer_the_other_way_than_it_was_asked(upstream: Upstream, provider: OpenAIProvider) -> None:
    whole = '{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}'
    upstream.replies.append(Reply(body=whole))
    assert text_of(await pieces_of(provider)) == "whole"
    upstream.replies.append(Reply(writes=['data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n']))
    assert text_of(await pieces_of(provider, WHOLE_CALL)) == "x"


async def test_connection_is_used_again_after_a_whole_answer(upstream: Upstream, provider: OpenAIProvider) -> None:
    upstream.replies.append(Reply(end_delay_s=0.05))
    for call in (CALL, WHOLE_CALL, CALL):
        await pieces_of(provider, call)
    assert len({request.connection for request in upstream.requests}) == 1


async def test_stream_without_usage_says_so(upstream: Upstream, provider: OpenAIProvider) -> None:
    upstream.replies.append(Reply(usage=None))
    assert (await pieces_of(provider))[-1].usage is None


@pytest.mark.parametrize("call", [CALL, WHOLE_CALL])
@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ("null", None),
        ("7", ProviderUsage(None, None, None)),
        ('[{"prompt_tokens":5}]', ProviderUsage(None, None, None)),
        ('{"prompt_tokens":5,"completion_tokens":7.0}', ProviderUsage(5, None, None)),
        ('{"prompt_tokens":5,"prompt_tokens_details":[3]}', ProviderUsage(5, None, None)),
        ('{"prompt_tokens":5,"completion_tokens":1e999}', None),
        ('{"prompt_tokens":5,"completion_tokens":7,"prompt_cache_hit_tokens":3}', ProviderUsage(5, 7, 3)),
    ],
)
async def test_odd_usage_breaks_no_answer(
    usage: str, read: ProviderUsage | None, call: Call, upstream: Upstream, provider: OpenAIProvider
) -> None:
    spoken = "delta" if call.stream else "message"
    said = f'{{"choices":[{{"{spoken}":{{"content":"Hello"}},"finish_reason":"stop"}}],"usage":{usage}}}'
    upstream.replies.append(Reply(events=[said]) if call.stream else Reply(body=said))
    pieces = await pieces_of(provider, call)
    assert text_of(pieces) == "Hello"
    assert pieces[-1].usage == read


async def test_stream_that_ends_without_done_is_whole_if_it_was_finished(
    upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(Reply(done=False))
    assert text_of(await pieces_of(provider)) == "Hello, world!"


BREAKS = {
    "no finish reason": Reply(finish_reason=None),
    "no finish reason, no done": Reply(finish_reason=None, usage=None, done=False),
    "cut in the middle": Reply(cut_after=3, event_delay_s=0.01),
    "garbage": Reply(events=['{"choices":[{"delta":{"content":"Hello"}}]}', "<html>"]),
    "wrong types": Reply(events=['{"choices":[{"delta":{"content":"Hello"}}]}', '{"choices":7}']),
    "invalid UTF-8": Reply(writes=['data: {"choices":[{"delta":{"content":"Hello"}}]}\n\n', 'data: {"x":"\xff"}\n\n']),
    "error event": Reply(events=['{"choices":[{"delta":{"content":"Hello"}}]}', '{"error":{"message":"canary"}}']),
    "error event as a text": Reply(events=['{"choices":[{"delta":{"content":"Hello"}}]}', '{"error":"canary"}']),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_stream_that_breaks_is_passed_on_so_far_and_then_fails(
    name: str, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(BREAKS[name])
    pieces, failure = await broken_off(provider)
    assert text_of(pieces).startswith("Hello")
    assert not any(piece.last for piece in pieces)
    assert "canary" not in str(failure)


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (CALL, Reply(events=["<html>"])),
        (CALL, Reply(events=['{"error":{"message":"overloaded"}}'])),
        (CALL, Reply(events=[], done=False)),
        (CALL, Reply(cut_after=0)),
        # Its role alone is nothing that a client could use.
        (CALL, Reply(cut_after=1)),
        (CALL, Reply(events=['{"choices":[{"delta":{"role":"assistant","content":""}}]}', '{"error":"overloaded"}'])),
        (CALL, Reply(body="<html>", content_type="text/html")),
        (WHOLE_CALL, Reply(body="<html>", content_type="text/html")),
        (WHOLE_CALL, Reply(body='{"choices":[]}')),
        (WHOLE_CALL, Reply(body='{"choices":[{"finish_reason":"stop"}]}')),
        (WHOLE_CALL, Reply(body='{"error":{"message":"x"}}')),
    ],
)
async def test_failure_as_the_first_thing_gives_no_piece(
    call: Call, reply: Reply, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(reply)
    with pytest.raises(ProviderError):
        await anext(provider.answer(call))


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (400, '{"error":{"message":"canary"}}', Failure.REFUSED),
        (422, '{"detail":[]}', Failure.REFUSED),
        (400, '{"error":{"code":"context_length_exceeded"}}', Failure.CONTEXT),
        (400, '{"error":{"type":"exceed_context_size_error","n_ctx":8192}}', Failure.CONTEXT),
        (400, '{"error":{"message":"This model\'s maximum context length is 10"}}', Failure.CONTEXT),
        (401, "", Failure.PROVIDER),
        (404, "", Failure.PROVIDER),
        (429, "", Failure.BUSY),
        (503, "canary", Failure.BUSY),
        (529, "", Failure.BUSY),
        # Of our own account with the provider: that does not pass by itself.
        (429, '{"error":{"code":"insufficient_quota"}}', Failure.PROVIDER),
        (500, "canary", Failure.PROVIDER),
        (302, "", Failure.PROVIDER),
    ],
)
async def test_status_tells_whether_another_provider_may_do_better(
    status: int, body: str, failure: Failure, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(Reply(status=status, body=body, headers={"Location": "/v1/chat/completions"}))
    error = await failure_of(provider)
    assert (error.failure, error.http_status) == (failure, status)
    assert "canary" not in str(error)
    assert len(upstream.requests) == 1


async def test_time_that_a_busy_provider_asks_for_is_told(upstream: Upstream, provider: OpenAIProvider) -> None:
    upstream.replies += [Reply(status=429, headers={"Retry-After": "7"}), Reply(status=429)]
    assert [(await failure_of(provider)).retry_after_s for _ in range(2)] == [7, None]


@pytest.mark.parametrize(
    ("event", "failure"),
    [
        ('{"error":{"message":"canary","code":503}}', Failure.BUSY),
        ('{"error":{"message":"canary","code":429}}', Failure.BUSY),
        ('{"error":{"message":"canary","code":500}}', Failure.PROVIDER),
        ('{"error":{"message":"canary","code":400}}', Failure.REFUSED),
        ('{"error":{"message":"canary","code":"server_error"}}', Failure.PROVIDER),
        ('{"error":{"message":"maximum context length is 10","code":null}}', Failure.CONTEXT),
        ('{"error":"canary"}', Failure.PROVIDER),
        ('{"object":"error","message":"canary","code":400}', Failure.REFUSED),
        ('{"choices":[],"x_groq":{"error":"canary"}}', Failure.PROVIDER),
    ],
)
@pytest.mark.parametrize("call", [CALL, WHOLE_CALL])
async def test_error_in_place_of_an_answer_means_what_its_status_would(
    call: Call, event: str, failure: Failure, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(Reply(events=[event]) if call.stream else Reply(body=event))
    failed = await failure_of(provider, call)
    assert (failed.failure, failed.what) == (failure, "reported an error in place of an answer")


async def test_server_that_is_not_there_is_a_failure() -> None:
    async with Upstream() as gone:
        address = gone.base_url
    provider = OpenAIProvider(address, QUICK)
    assert (await failure_of(provider)).what == "could not be reached"
    await provider.aclose()


@pytest.mark.parametrize("reply", [Reply(delay_s=60), Reply(first_event_delay_s=60), Reply(stall_after=2)])
async def test_silence_ends_in_a_failure_and_closes_the_connection(
    reply: Reply, upstream: Upstream, quick: OpenAIProvider
) -> None:
    upstream.replies.append(reply)
    assert (await failure_of(quick)).what == "did not answer in time"
    await upstream.requests[0].ended.wait()
    assert upstream.requests[0].aborted


async def test_usage_that_never_follows_is_not_waited_for_long(upstream: Upstream, quick: OpenAIProvider) -> None:
    # Role, two contents, finish, and then silence where usage would be.
    upstream.replies.append(Reply(contents=["a", "b"], stall_after=4))
    pieces = await pieces_of(quick)
    assert text_of(pieces) == "ab"
    assert pieces[-1].usage is None


@pytest.mark.parametrize(
    ("call", "reply"),
    [
        (WHOLE_CALL, Reply(delay_s=60)),
        (CALL, Reply(delay_s=60)),
        (CALL, Reply(first_event_delay_s=60)),
        (CALL, Reply(stall_after=3)),
    ],
)
async def test_cancelling_closes_the_connection_at_once(
    call: Call, reply: Reply, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(reply)
    reading = asyncio.create_task(pieces_of(provider, call))
    request = await upstream.received()
    await asyncio.sleep(0.05)
    reading.cancel()
    async with asyncio.timeout(0.25):
        await request.ended.wait()
    assert request.aborted


async def test_long_stream_passes_whole_and_in_order(upstream: Upstream, provider: OpenAIProvider) -> None:
    contents = [f"{number} " for number in range(5000)]
    upstream.replies.append(Reply(contents=contents))
    assert text_of(await pieces_of(provider)) == "".join(contents)


async def test_big_prompt_arrives_whole(upstream: Upstream, provider: OpenAIProvider) -> None:
    messages = msgspec.json.encode([{"role": "user", "content": "word " * 800_000}])
    await pieces_of(provider, replace(CALL, messages_json=messages))
    assert messages in upstream.requests[0].body
