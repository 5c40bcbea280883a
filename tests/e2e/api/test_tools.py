"""Tool calling with the official client, whatever dialect the upstream speaks."""

import json
from typing import Any

import openai
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.e2e.chats import QUESTION, WEATHER
from tests.e2e.raw_http import post_chat
from tests.support.service import Service
from tests.support.upstreams.openai import Reply, Upstream

PARIS = {"id": "call_abc", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'}}

NOW: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "now",
        "strict": True,
        "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
    },
}

# A server that neither numbers its calls nor keeps to the ids' form, and repeats the name.
DIALECT: list[dict[str, Any]] = [
    {"id": "7f", "function": {"name": "get_weather", "arguments": ""}},
    {"id": "7f", "function": {"name": "get_weather", "arguments": '{"city":'}},
    {"id": "7f", "function": {"arguments": '"Paris"}'}},
    {"id": "80", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}},
]


def test_whole_answer_carries_the_calls(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=[], message_tool_calls=[PARIS], finish_reason="tool_calls"))
    completion = client.chat.completions.create(model="forte", messages=QUESTION, tools=[WEATHER])
    [choice] = completion.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    [call] = choice.message.tool_calls
    assert call.model_dump(exclude_none=True) == PARIS


def test_streamed_calls_come_in_openais_form(service: Service, upstream: Upstream, api_key: str) -> None:
    upstream.replies.append(Reply(contents=[], tool_calls=DIALECT, finish_reason="stop"))
    body = {"messages": QUESTION, "tools": [WEATHER], "stream": True}
    *chunks, done = post_chat(service, api_key, body).events
    assert done == "[DONE]"
    deltas = [call for chunk in chunks[1:-2] for call in chunk["choices"][0]["delta"]["tool_calls"]]
    assert deltas == [
        {"index": 0, "id": "call_7f", "type": "function", "function": {"name": "get_weather", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"city":'}},
        {"index": 0, "function": {"arguments": '"Paris"}'}},
        {
            "index": 1,
            "id": "call_80",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city":"Rome"}'},
        },
    ]
    assert chunks[-2]["choices"] == [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    assert chunks[-1]["usage"]["total_tokens"] == 18


def test_stream_helper_puts_calls_together(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=[], tool_calls=DIALECT, finish_reason="tool_calls"))
    with client.chat.completions.stream(model="forte", messages=QUESTION, tools=[WEATHER]) as stream:
        final = stream.get_final_completion()
    message = final.choices[0].message
    assert final.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    assert message.tool_calls is not None
    assert [json.loads(call.function.arguments) for call in message.tool_calls] == [{"city": "Paris"}, {"city": "Rome"}]
    assert [call.id for call in message.tool_calls] == ["call_7f", "call_80"]


def test_calls_that_were_streamed_to_us_are_folded(client: openai.OpenAI, upstream: Upstream) -> None:
    # The credit is not ample for this class, so the answer is watched while it grows.
    upstream.replies.append(Reply(contents=[], tool_calls=DIALECT, finish_reason="tool_calls"))
    completion = client.chat.completions.create(model="fortissimo", messages=QUESTION, tools=[WEATHER])
    assert upstream.requests[0].json["stream"] is True
    message = completion.choices[0].message
    assert message.content is None
    assert message.tool_calls is not None
    assert [call.id for call in message.tool_calls] == ["call_7f", "call_80"]


def test_call_without_arguments_has_an_empty_object(client: openai.OpenAI, upstream: Upstream) -> None:
    for function in ({"arguments": ""}, {"arguments": None}, {}):
        called = {"id": "call_abc", "type": "function", "function": {"name": "now", **function}}
        upstream.replies.append(Reply(contents=[], message_tool_calls=[called], finish_reason="tool_calls"))
        completion = client.chat.completions.parse(model="mezzo", messages=QUESTION, tools=[NOW])
        assert completion.choices[0].message.tool_calls is not None
        [call] = completion.choices[0].message.tool_calls
        assert (call.function.arguments, call.function.parsed_arguments) == ("{}", {})


def test_streamed_call_without_arguments_has_an_empty_object_before_the_end(
    service: Service, upstream: Upstream, api_key: str
) -> None:
    called = {"index": 0, "id": "call_abc", "type": "function", "function": {"name": "now", "arguments": ""}}
    upstream.replies.append(Reply(contents=[], tool_calls=[called], finish_reason="tool_calls"))
    *chunks, _, _ = post_chat(service, api_key, {"messages": QUESTION, "tools": [NOW], "stream": True}).events
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": None},
        {"tool_calls": [called]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        {},
    ]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_stream_helper_reads_the_arguments_of_each_call_before_the_next_begins(
    client: openai.OpenAI, upstream: Upstream
) -> None:
    """The helper raises an error if they are no JSON then."""
    calls = [
        {"index": 0, "id": "call_a", "function": {"name": "now", "arguments": ""}},
        {"index": 1, "id": "call_b", "function": {"name": "get_weather", "arguments": ""}},
        {"index": 1, "function": {"arguments": '{"city":"Rome"}'}},
        {"index": 2, "id": "call_c", "function": {"name": "now"}},
    ]
    upstream.replies.append(Reply(contents=[], tool_calls=calls, finish_reason="tool_calls"))
    with client.chat.completions.stream(model="forte", messages=QUESTION, tools=[NOW, WEATHER]) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
    assert [(event.name, event.parsed_arguments) for event in done] == [
        ("now", {}),
        ("get_weather", {"city": "Rome"}),
        ("now", {}),
    ]


def test_results_go_back_and_the_conversation_goes_on(client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.replies.append(Reply(contents=[], message_tool_calls=[PARIS], finish_reason="tool_calls"))
    first = client.chat.completions.create(model="mezzo", messages=QUESTION, tools=[WEATHER])
    called = first.choices[0].message
    messages: list[ChatCompletionMessageParam] = [
        *QUESTION,
        called.to_dict(),
        {"role": "tool", "tool_call_id": "call_abc", "content": '{"sky":"clear"}'},
    ]
    upstream.replies.append(Reply(contents=["Clear."]))
    second = client.chat.completions.create(model="mezzo", messages=messages, tools=[WEATHER])
    assert second.choices[0].message.content == "Clear."
    assert second.choices[0].finish_reason == "stop"
    told = upstream.requests[1].json["messages"]
    assert [message["role"] for message in told] == ["system", "user", "assistant", "tool"]
    assert told[2]["tool_calls"] == [PARIS]
    assert told[3] == messages[2]


def test_message_that_the_stream_helper_put_together_is_sent_back_without_what_it_added(
    client: openai.OpenAI, upstream: Upstream
) -> None:
    upstream.replies.append(Reply(contents=[], tool_calls=DIALECT[:3], finish_reason="tool_calls"))
    with client.chat.completions.stream(model="mezzo", messages=QUESTION, tools=[WEATHER]) as stream:
        called = stream.get_final_completion().choices[0].message
    messages: list[ChatCompletionMessageParam] = [
        *QUESTION,
        called,
        {"role": "tool", "tool_call_id": "call_7f", "content": "clear"},
    ]
    client.chat.completions.create(model="mezzo", messages=messages, tools=[WEATHER])
    assert upstream.requests[1].json["messages"][2] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**PARIS, "id": "call_7f"}],
    }


def test_tools_and_choice_go_upstream_byte_for_byte(service: Service, upstream: Upstream, api_key: str) -> None:
    tools = json.dumps([WEATHER], indent=2).encode()
    choice = b'{"function" : {"name":"get_weather"}, "type":"function"}'
    body = b'{"messages":%b,"tools":%b,"tool_choice":%b}' % (json.dumps(QUESTION).encode(), tools, choice)
    assert post_chat(service, api_key, body).status == 200
    [request] = upstream.requests
    assert b'"tools":' + tools + b"," in request.body
    assert b'"tool_choice":' + choice + b"," in request.body or request.body.endswith(choice + b"}")


def test_no_tools_is_the_plain_path(client: openai.OpenAI, upstream: Upstream) -> None:
    client.chat.completions.create(model="mezzo", messages=QUESTION, tools=[], tool_choice="none")
    assert "tools" not in upstream.requests[0].json
    assert "tool_choice" not in upstream.requests[0].json


def test_max_tokens_is_fitted_beside_large_tools(client: openai.OpenAI, upstream: Upstream) -> None:
    client.chat.completions.create(model="mezzo", messages=QUESTION, tools=[WEATHER] * 200, max_tokens=900_000)
    assert upstream.requests[0].json["max_tokens"] == 131_072
