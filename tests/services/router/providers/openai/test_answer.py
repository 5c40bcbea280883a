"""Answers of a server that speaks as OpenAI does, over a real socket."""

from typing import Any

import msgspec
import pytest

from services.router.providers.base import ProviderCall, ProviderUsage
from services.router.providers.http.stream import MOST_EVENTS_A_PIECE
from services.router.providers.openai.provider import OpenAIProvider
from tests.services.router.providers.asking import CALL, WHOLE_CALL, both_ways, pieces_of, text_of
from tests.support.upstreams.openai import Reply, Upstream


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


@pytest.mark.parametrize("reason", [',"finish_reason":null', ""], ids=["null", "absent"])
async def test_answer_in_one_piece_needs_no_reason_to_end(
    reason: str, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(Reply(body=f'{{"choices":[{{"message":{{"content":"Hello"}}{reason}}}]}}'))
    [piece] = await pieces_of(provider, WHOLE_CALL)
    assert (piece.contents, piece.finish_reason, piece.last) == (["Hello"], "stop", True)


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


@both_ways
async def test_refusal_is_told_apart_from_an_answer(
    call: ProviderCall, upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(Reply(contents=["Well."], refusals=["I", " cannot."], at_once=True))
    spoken = [("".join(piece.contents), piece.refuses) for piece in await pieces_of(provider, call)]
    assert spoken == [("Well.", False), ("I cannot.", True)]


async def test_what_follows_a_refusal_is_an_answer_again(upstream: Upstream, provider: OpenAIProvider) -> None:
    deltas = [{"refusal": "I cannot."}, {"content": "Or can I?"}]
    events = [msgspec.json.encode({"choices": [{"delta": delta}]}).decode() for delta in deltas]
    end = '{"choices":[{"delta":{},"finish_reason":"stop"}]}'
    upstream.replies.append(Reply(events=[*events, end], at_once=True))
    spoken = [(piece.contents, piece.refuses) for piece in await pieces_of(provider)]
    assert spoken == [(["I cannot."], True), (["Or can I?"], False)]


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


async def test_stream_without_usage_says_so(upstream: Upstream, provider: OpenAIProvider) -> None:
    upstream.replies.append(Reply(usage=None))
    assert (await pieces_of(provider))[-1].usage is None


@pytest.mark.parametrize("call", [CALL, WHOLE_CALL])
@pytest.mark.parametrize(
    ("usage", "read"),
    [
        ("null", None),
        ("7", None),
        ('[{"prompt_tokens":5}]', None),
        ('{"prompt_tokens":5,"completion_tokens":7.0}', ProviderUsage(5, None, None)),
        ('{"prompt_tokens":5,"prompt_tokens_details":[3]}', ProviderUsage(5, None, None)),
        ('{"prompt_tokens":5,"completion_tokens":1e999}', ProviderUsage(5, None, None)),
        ('{"prompt_tokens":5,"completion_tokens":7,"prompt_cache_hit_tokens":3}', ProviderUsage(5, 7, 3)),
        # Other names for the parts: of LiteLLM, Alibaba and SGLang.
        ('{"prompt_tokens":5,"prompt_tokens_details":{"cache_creation_tokens":2}}', ProviderUsage(5, None, None, 2)),
        (
            '{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":1,"cache_creation_input_tokens":2}}',
            ProviderUsage(5, None, 1, 2),
        ),
        ('{"completion_tokens":7,"reasoning_tokens":4}', ProviderUsage(None, 7, None, reasoning_tokens=4)),
        (
            '{"completion_tokens":7,"reasoning_tokens":0,"completion_tokens_details":{"reasoning_tokens":4}}',
            ProviderUsage(None, 7, None, reasoning_tokens=4),
        ),
        ('{"completion_tokens":7,"completion_tokens_details":{"reasoning_tokens":-1}}', ProviderUsage(None, 7, None)),
    ],
)
async def test_odd_usage_breaks_no_answer(
    usage: str, read: ProviderUsage | None, call: ProviderCall, upstream: Upstream, provider: OpenAIProvider
) -> None:
    spoken = "delta" if call.stream else "message"
    said = f'{{"choices":[{{"{spoken}":{{"content":"Hello"}},"finish_reason":"stop"}}],"usage":{usage}}}'
    upstream.replies.append(Reply(events=[said]) if call.stream else Reply(body=said))
    pieces = await pieces_of(provider, call)
    assert text_of(pieces) == "Hello"
    assert pieces[-1].usage == read


@pytest.mark.parametrize(
    ("usages", "read"),
    [
        (['{"prompt_tokens":5,"completion_tokens":7}', "{}"], ProviderUsage(5, 7, None)),
        (['{"prompt_tokens":5,"completion_tokens":7}', '{"prompt_tokens":null}', "7"], ProviderUsage(5, 7, None)),
        (['{"prompt_tokens":5,"prompt_cache_hit_tokens":3}', '{"completion_tokens":7}'], ProviderUsage(5, 7, 3)),
        (['{"prompt_tokens":5,"completion_tokens":1}', '{"completion_tokens":0}'], ProviderUsage(5, 0, None)),
    ],
)
async def test_count_that_was_told_stays_until_another_is(
    usages: list[str], read: ProviderUsage, upstream: Upstream, provider: OpenAIProvider
) -> None:
    end = '{"choices":[{"delta":{"content":"Hello"},"finish_reason":"stop"}]}'
    upstream.replies.append(Reply(events=[end, *(f'{{"choices":[],"usage":{usage}}}' for usage in usages)]))
    assert (await pieces_of(provider))[-1].usage == read


async def test_stream_that_ends_without_done_is_whole_if_it_was_finished(
    upstream: Upstream, provider: OpenAIProvider
) -> None:
    upstream.replies.append(Reply(done=False))
    assert text_of(await pieces_of(provider)) == "Hello, world!"


async def test_usage_that_never_follows_is_not_waited_for_long(upstream: Upstream, quick: OpenAIProvider) -> None:
    # Role, two contents, finish, and then silence where usage would be.
    upstream.replies.append(Reply(contents=["a", "b"], stall_after=4))
    pieces = await pieces_of(quick)
    assert text_of(pieces) == "ab"
    assert pieces[-1].usage is None


async def test_long_stream_passes_whole_and_in_order(upstream: Upstream, provider: OpenAIProvider) -> None:
    contents = [f"{number} " for number in range(5000)]
    upstream.replies.append(Reply(contents=contents))
    assert text_of(await pieces_of(provider)) == "".join(contents)
