"""Long streams, many streams, large prompts."""

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import CHAT, ask, post_chat, send_bytes
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream

MB = 1024 * 1024
# Of the model that the tests' routes name.
WINDOW_TOKENS = 1_100_000
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def test_stream_of_50_000_chunks_passes_whole_and_in_order(service: Service, upstream: Upstream, api_key: str) -> None:
    contents = [f" {number % 1000}" for number in range(50_000)]
    usage = {"prompt_tokens": 11, "completion_tokens": 100_000, "total_tokens": 100_011}
    upstream.replies.append(Reply(contents=contents, usage=usage))
    answer = post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION, "stream": True})
    assert answer.status == 200
    role, *chunks, finish, counted, done = answer.events
    assert role["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["choices"][0]["delta"]["content"] for chunk in chunks] == contents
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert counted["usage"]["completion_tokens"] == 100_000
    assert done == "[DONE]"


async def test_hundred_streams_at_once_are_each_whole(
    service: Service, async_client: openai.AsyncOpenAI, upstream: Upstream, account: str
) -> None:
    said = [[f"{number}:", *(f" {word}" for word in range(40))] for number in range(100)]
    upstream.replies.extend(Reply(contents=contents, event_delay_s=0.02) for contents in said)
    all_have_begun = asyncio.Barrier(100)

    async def read() -> list[str]:
        stream = await async_client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True)
        chunks = aiter(stream)
        role = await anext(chunks)
        assert role.choices[0].delta.role == "assistant"
        await all_have_begun.wait()
        *spoken, finish, counted = [chunk async for chunk in chunks]
        assert finish.choices[0].finish_reason == "stop"
        assert counted.usage is not None
        return [chunk.choices[0].delta.content or "" for chunk in spoken]

    heard = await asyncio.gather(*(read() for _ in range(100)))
    assert sorted(heard) == sorted(said)
    assert service.settled_balance_nanos(account) == 5 * 10**9 - 100 * (11 * 100 + 7 * 210)
    assert service.audit() == []


def test_prompt_of_4_mb_reaches_the_upstream_byte_for_byte_and_is_charged(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    # Spelled as a client may: escapes, spaces and letters outside of ASCII must arrive as they are.
    sentence = 'The caf\\u00e9 on the corner opens at seven, and the "été" menu is \\"ready\\" by noon. '
    text = sentence.replace('"été"', "été") * (4 * MB // len(sentence) + 1)
    messages = ('[ {"role":"user", "content":"' + text + '"} ]').encode()
    assert len(messages) > 4 * MB
    upstream.replies.append(Reply(usage=None))
    answer = post_chat(service, api_key, b'{"model":"mezzo","messages":' + messages + b"}")
    assert answer.status == 200
    [request] = upstream.requests
    assert messages[1:] in request.body
    assert request.json["messages"][1:] == json.loads(messages)
    usage = answer.json["usage"]
    assert usage["prompt_tokens"] > 500_000
    cost_nanos = 100 * usage["prompt_tokens"] + 210 * usage["completion_tokens"]
    assert service.settled_balance_nanos(account) == 5 * 10**9 - cost_nanos


@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["plain", "tools"])
def test_answer_is_fitted_to_what_a_big_prompt_leaves_of_the_window_and_the_header_says_so(
    service: Service, upstream: Upstream, api_key: str, tools: list[dict[str, Any]]
) -> None:
    fields: dict[str, Any] = {"tools": tools} if tools else {}
    messages = [{"role": "user", "content": "a b " * 500_000}]
    upstream.replies.append(Reply(usage=None))
    answer = post_chat(service, api_key, {"model": "mezzo", "messages": messages, "max_tokens": 100_000, **fields})
    assert answer.status == 200
    fitted_tokens = int(answer.headers["x-legato-max-tokens"])
    assert 1 <= fitted_tokens < 100_000
    assert answer.json["usage"]["prompt_tokens"] + fitted_tokens <= WINDOW_TOKENS
    [request] = upstream.requests
    assert request.json["max_tokens"] == fitted_tokens


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Hello there"}] * 40_000,
        [{"role": "user", "content": [{"type": "text", "text": "Hello"}] * 40_000}],
        [{"role": "developer", "content": "naïve \U0001f3b5 \n" * 100_000}, {"role": "user", "content": "?"}],
    ],
    ids=["many messages", "many parts", "long guidance"],
)
def test_big_prompts_of_every_shape_arrive_whole(
    service: Service, upstream: Upstream, api_key: str, messages: list[dict[str, Any]]
) -> None:
    answer = post_chat(service, api_key, {"model": "mezzo", "messages": messages})
    assert answer.status == 200
    [request] = upstream.requests
    _, *arrived = request.json["messages"]
    assert [message["content"] for message in arrived] == [message["content"] for message in messages]


@pytest.mark.parametrize(("answer_bytes", "status"), [(6 * MB, 200), (24 * MB, 502)])
def test_answer_larger_than_any_message_between_processes_breaks_no_stream(
    service: Service, upstream: Upstream, client: openai.OpenAI, api_key: str, answer_bytes: int, status: int
) -> None:
    upstream.replies.append(Reply(contents=[" x"], repeat=200, event_delay_s=0.01))
    with client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True) as stream:
        next(iter(stream))
        # An answer that is too long is asked for once more.
        upstream.replies += [Reply(contents=["y" * answer_bytes])] * (1 if status == 200 else 2)
        answer = post_chat(service, api_key, {"model": "mezzo", "messages": QUESTION, "max_tokens": 1_000})
        assert answer.status == status
        said = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "".join(said) == " x" * 200


def test_prompt_that_no_window_holds_is_refused_and_free(
    service: Service, upstream: Upstream, account: str, api_key: str
) -> None:
    messages = [{"role": "user", "content": "a b " * 1_000_000}]
    answer = post_chat(service, api_key, {"model": "mezzo", "messages": messages})
    assert answer.status == 400
    assert answer.error["code"] == "context_length_exceeded"
    prompt_tokens, window_tokens = map(int, re.findall(r"\d+", answer.error["message"]))
    assert prompt_tokens > window_tokens == WINDOW_TOKENS
    assert upstream.requests == []
    assert service.settled_balance_nanos(account) == 5 * 10**9


def test_body_over_16_mb_is_refused_by_its_length_alone(service: Service, api_key: str) -> None:
    headers = ["Host: test", f"Authorization: Bearer {api_key}", f"Content-Length: {16 * MB + 1}"]
    answer = send_bytes(service, "\r\n".join([f"POST {CHAT} HTTP/1.1", *headers, "", ""]).encode())
    assert answer.status == 413
    assert answer.error["code"] == "request_too_large"


@pytest.mark.parametrize("credits", ["0", "0.01"])
def test_large_body_is_refused_unread_where_the_credit_cannot_pay_for_it(
    service: Service, upstream: Upstream, credits: str
) -> None:
    poor_key = service.new_key(service.new_account(credits))
    headers = ["Host: test", f"Authorization: Bearer {poor_key}", f"Content-Length: {16 * MB}"]
    answer = send_bytes(service, "\r\n".join([f"POST {CHAT} HTTP/1.1", *headers, "", ""]).encode())
    assert answer.status == 402
    assert answer.error["code"] == "insufficient_quota"
    assert answer.headers["x-should-retry"] == "false"
    # One that comes in chunks has no length: it is read, and no more than that.
    no_json = (b"x" * MB for _ in range(15))
    assert ask(service, "POST", CHAT, poor_key, no_json).status == 402
    assert upstream.requests == []


def test_body_over_16_mb_without_a_length_is_refused(service: Service, api_key: str) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"messages":[{"role":"user","content":"'
        for _ in range(17):
            yield b"x" * MB

    answer = ask(service, "POST", CHAT, api_key, pieces())
    assert answer.status == 413
    assert answer.error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("has_key", "size_bytes", "status"), [(False, 8 * MB, 401), (True, 17 * MB, 413)])
def test_client_that_asks_once_and_sends_everything_before_it_listens_is_told(
    service: Service, api_key: str, has_key: bool, size_bytes: int, status: int
) -> None:
    answer = post_chat(service, api_key if has_key else "wrong", b"x" * size_bytes, {"Connection": "close"})
    assert answer.status == status


def test_body_of_just_16_mb_is_read(service: Service, api_key: str) -> None:
    body = b'{"messages":[]'.ljust(16 * MB - 1) + b"}"
    answer = post_chat(service, api_key, body)
    assert answer.status == 400
    assert answer.error["param"] == "messages"
