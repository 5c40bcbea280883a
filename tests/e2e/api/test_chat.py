"""Chats with the official client, whole and streamed."""

import json
import time

import openai

from services.rules.usage import parts_of
from tests.e2e.chats import QUESTION
from tests.e2e.raw_http import post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream

CACHED_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": dict.fromkeys(parts_of("prompt_tokens"), 0)
    | {"cached_tokens": 64, "cache_write_tokens": 30},
    "completion_tokens_details": dict.fromkeys(parts_of("completion_tokens"), 0) | {"reasoning_tokens": 5},
}
DAY_S = 86_400


def test_chat_gives_a_completion(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["It", " rains."], usage=CACHED_USAGE))
    completion = client.chat.completions.create(model="mezzo", messages=QUESTION)
    assert completion.id.startswith("chatcmpl-")
    assert completion.object == "chat.completion"
    assert abs(completion.created - time.time()) < DAY_S
    assert completion.model == "mezzo"
    [choice] = completion.choices
    assert (choice.index, choice.finish_reason) == (0, "stop")
    assert (choice.message.role, choice.message.content) == ("assistant", "It rains.")
    assert choice.message.tool_calls is None
    assert completion.usage is not None
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 64
    assert completion.usage.prompt_tokens == 100
    assert completion.usage.completion_tokens == 20
    assert completion.usage.total_tokens == 120


def test_stream_has_the_documented_sequence(service: Service, upstream: Upstream, api_key: str) -> None:
    upstream.replies.append(Reply(contents=["It", " rains."], usage=CACHED_USAGE))
    answer = post_chat(service, api_key, {"model": "forte", "messages": QUESTION, "stream": True})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    *chunks, done = answer.events
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert {chunk["model"] for chunk in chunks} == {"forte"}
    assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
    *spoken, counted = chunks
    assert [(choice["index"], choice["finish_reason"]) for chunk in spoken for choice in chunk["choices"]] == [
        (0, None),
        (0, None),
        (0, None),
        (0, "stop"),
    ]
    assert [chunk["choices"][0]["delta"] for chunk in spoken] == [
        {"role": "assistant", "content": ""},
        {"content": "It"},
        {"content": " rains."},
        {},
    ]
    assert not any("usage" in chunk for chunk in spoken)
    assert counted["choices"] == []
    assert counted["usage"] == CACHED_USAGE


def test_usage_chunk_comes_whatever_stream_options_ask(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="auto", messages=QUESTION, stream=True, stream_options={"include_usage": False}
    ) as stream:
        last = list(stream)[-1]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.total_tokens == 18


def test_stream_helper_puts_the_answer_together(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=["It", " rains."]))
    with client.chat.completions.stream(model="forte", messages=QUESTION) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        final = stream.get_final_completion()
    assert deltas == ["", "It", " rains."]
    assert final.choices[0].message.content == "It rains."
    assert final.choices[0].finish_reason == "stop"
    assert final.usage is not None
    assert final.usage.completion_tokens == 7


async def test_async_client_chats_and_streams(async_client: openai.AsyncOpenAI, upstream: Upstream) -> None:
    upstream.default_reply = Reply(contents=["It", " rains."])
    completion = await async_client.chat.completions.create(model="mezzo", messages=QUESTION)
    assert completion.choices[0].message.content == "It rains."
    stream = await async_client.chat.completions.create(model="mezzo", messages=QUESTION, stream=True)
    contents = [chunk.choices[0].delta.content async for chunk in stream if chunk.choices]
    assert contents == ["", "It", " rains.", None]


def test_auto_and_no_model_are_served_by_forte(service: Service, client: openai.OpenAI, api_key: str) -> None:
    assert client.chat.completions.create(model="auto", messages=QUESTION).model == "forte"
    assert post_chat(service, api_key, {"messages": QUESTION}).json["model"] == "forte"
    assert post_chat(service, api_key, {"messages": QUESTION, "model": None}).json["model"] == "forte"


def test_messages_go_upstream_as_they_came_after_the_character(
    service: Service, upstream: Upstream, api_key: str
) -> None:
    messages = (
        b'[{"role":"system","content":"Speak French."}, {"content" : [{"type":"text","text":"\\u00e9t\xc3\xa9 \\/ 1"}],'
        b' "role":"user", "name":"ann"}]'
    )
    body = b'{"model":"mezzo","temperature":0.5,"max_tokens":9,"stop":["X"],"unheard_of":"z","messages":' + messages
    assert post_chat(service, api_key, body + b"}").status == 200
    [request] = upstream.requests
    assert b'"\\u00e9t\xc3\xa9 \\/ 1"' in request.body
    [character, *rest] = request.json["messages"]
    assert character["role"] == "system"
    assert character["content"]
    assert rest == json.loads(messages)
    sent = request.json
    assert (sent["temperature"], sent["max_tokens"], sent["stop"]) == (0.5, 9, ["X"])
    assert "unheard_of" not in sent
    assert sent["model"] == "upstream-model"


def test_client_sees_its_request_id_and_its_rate(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="mezzo", messages=QUESTION)
    assert len(raw.headers["x-request-id"]) == 32
    assert raw.parse()._request_id == raw.headers["x-request-id"]
    for what in ("requests", "tokens"):
        limit = int(raw.headers[f"x-ratelimit-limit-{what}"])
        remaining = int(raw.headers[f"x-ratelimit-remaining-{what}"])
        assert 0 < remaining < limit
        assert raw.headers[f"x-ratelimit-reset-{what}"].endswith("s")


def test_stream_carries_the_same_headers(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="mezzo", messages=QUESTION, stream=True)
    assert len(raw.headers["x-request-id"]) == 32
    assert int(raw.headers["x-ratelimit-remaining-requests"]) > 0
    assert sum(1 for _ in raw.parse()) == 7
