import asyncio
import contextlib
import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.wire import chat_request as requests
from edge.wire.chat_request import LARGEST_FIELD_BYTES, MOST_NAMES, OTHERS, SLICE_BYTES, ChatBody
from edge.wire.messages import MOST_ELEMENTS, MOST_TOOLS
from services.chassis.errors import LegatoError, Reason

USER = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def decode_chat(body: bytes) -> ChatBody:
    return asyncio.run(requests.decode_chat(body))


def decode(**fields: Any) -> ChatBody:
    return decode_chat(json.dumps({"messages": [USER], **fields}).encode())


def refusal(body: bytes) -> LegatoError:
    with pytest.raises(LegatoError) as refused:
        decode_chat(body)
    assert refused.value.reason is Reason.REQUEST_INVALID
    return refused.value


def refusal_of(**fields: Any) -> LegatoError:
    return refusal(json.dumps({"messages": [USER], **fields}).encode())


def test_little_is_needed() -> None:
    body = decode()
    assert (body.model, body.stream, body.max_tokens) == ("auto", False, None)
    assert (body.tools_json, body.tool_choice_json, body.parameters_json) == (b"", b"", b"")


def test_messages_and_tools_keep_their_bytes() -> None:
    messages = b'[ {"content":"Gr\\u00fc\\u00dfe  \xf0\x9f\x8e\xb5", "role" :"user"} ]'
    tools = b'[{"type":"function","function":{"name":"f","parameters":{"b":1.0,"a":10000000000000000000001}}}]'
    choice = b'{ "type":"function","function":{"name":"f"}}'
    body = decode_chat(b'{"messages":%b,"tools":%b,"tool_choice":%b}' % (messages, tools, choice))
    assert (body.messages_json, body.tools_json, body.tool_choice_json) == (messages, tools, choice)


ROLES = ("system", "developer", "user", "assistant")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "Two"}], "name": "Ann"},
        {"role": "assistant", "content": "Yes."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "21 degrees"},
    ],
)
def test_every_form_of_message_is_taken(message: dict[str, Any]) -> None:
    assert decode(messages=[USER, message]).messages_json


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("Hello", "messages"),
        ({}, "messages"),
        ([5], "messages[0]"),
        ([{"content": "Hello"}], "messages[0]"),
        ([{"role": "wizard", "content": "Hello"}], "messages[0].role"),
        ([{"role": "function", "content": "Hello"}], "messages[0].role"),
        ([{"role": "user"}], "messages[0]"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        (
            [USER, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[1].content",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content"),
        ([{"role": "assistant"}], "messages[0].content"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "messages[0].content"),
        ([{"role": "assistant", "tool_calls": [{"id": "call_1"}]}], "messages[0].tool_calls[0]"),
        ([{"role": "user", "content": "Hello", "tool_calls": [{}]}], "messages[0].tool_calls"),
        ([{"role": "system", "content": "Hello", "tool_calls": "none"}], "messages[0].tool_calls"),
        ([{"role": "tool", "content": "21", "tool_call_id": "a", "tool_calls": [{}]}], "messages[0].tool_calls"),
        *(([{"role": role, "content": "x", "name": 5}], "messages[0].name") for role in ROLES),
        ([{"role": "tool", "content": "21"}], "messages[0]"),
        ([{"role": "tool", "content": "21", "tool_call_id": ""}], "messages[0].tool_call_id"),
    ],
)
def test_wrong_messages_are_refused_with_their_place(messages: Any, param: str) -> None:
    assert refusal_of(messages=messages).param == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b'{"messages":[{"role":"user","content":"\xff\xfe"}]}',
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}',
        b'{"messages":[{"role":"user","content":"x"}],"temperature":Infinity}',
        b'{"messages":[{"role":"user","content":"x"}],"max_tokens":1e999}',
        b'{"messages":[{"role":"user","content":"x"}],"unknown":tru}',
        b'{"messages":[{"role":"user","content":"x"}],"tools":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages":[{"role":"user","content":"x"}],"unknown":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
)
def test_what_is_no_proper_json_is_refused(body: bytes) -> None:
    refusal(body)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 5}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": -5}, "max_completion_tokens"),
        ({"stop": ["1", "2", "3", "4", "5"]}, "stop"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": None}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": "x"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"strict": "yes"}}},
            "response_format.json_schema.strict",
        ),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": "two words"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": "yes"}}]}, "tools[0].function.strict"),
        ({"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "other"}}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
def test_wrong_fields_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert refusal_of(**fields).param == param


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 2.5}, "temperature: Expected 'float' <= 2.0."),
        ({"presence_penalty": -3}, "presence_penalty: Expected 'float' >= -2.0."),
        ({"stop": ["1", "2", "3", "4", "5"]}, "stop: Expected 'array' of length <= 4."),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content: Expected 'array' of length >= 1."),
        (
            {"messages": [{"role": "tool", "content": "21", "tool_call_id": ""}]},
            "messages[0].tool_call_id: Expected 'str' of length >= 1.",
        ),
        ({"stream": "yes"}, "stream: Expected 'bool | null', got 'str'."),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type: This value is not one of those accepted here."),
    ],
)
def test_refusals_say_what_is_accepted(fields: dict[str, Any], message: str) -> None:
    assert refusal_of(**fields).message == message


@given(st.text(min_size=8))
def test_refusals_never_quote_what_was_sent(secret: str) -> None:
    secret = f"canary-{secret}"
    for message in ({"role": secret, "content": "x"}, {"role": "user", "content": {"x": secret}}):
        error = refusal_of(messages=[message], tool_choice=secret, model=secret)
        assert "canary" not in error.message + str(error.param)


def test_null_is_the_same_as_absent() -> None:
    optional = [
        "model", "stream", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed",
        "presence_penalty", "frequency_penalty", "response_format", "tools", "tool_choice", "parallel_tool_calls", "n",
        "logprobs", "top_logprobs", "stream_options", "user", "metadata", "functions", "function_call", "modalities",
        "audio", "prediction", "web_search_options", "store", "service_tier", "logit_bias", "reasoning_effort", "other",
    ]  # fmt: skip
    assert decode(**dict.fromkeys(optional)) == decode()


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Hello", "name": None, "tool_calls": None, "tool_call_id": None},
        {"role": "user", "content": "Hello", "tool_calls": []},
        {"role": "assistant", "content": "Hello", "tool_calls": None, "tool_call_id": None, "refusal": None},
        {"role": "tool", "content": "21", "tool_call_id": "call_1", "tool_calls": None},
    ],
)
def test_null_is_the_same_as_absent_in_a_message_too(message: dict[str, Any]) -> None:
    assert decode(messages=[message]).messages_json


def test_schema_of_an_answer_keeps_its_bytes() -> None:
    wanted = b'{ "type":"json_schema","json_schema":{"name":"x","schema":{"b":1.0,"a":null},"strict":null}}'
    body = decode_chat(b'{"messages":[{"role":"user","content":"x"}],"response_format":%b}' % wanted)
    assert body.parameters_json == b'{"response_format":%b}' % wanted


def test_sampling_goes_on_and_nothing_else_does() -> None:
    body = decode(
        temperature=0.5, top_p=0.9, stop=["a"], seed=7, presence_penalty=1, frequency_penalty=-1,
        response_format={"type": "json_object"}, parallel_tool_calls=False, tools=[TOOL],
        reasoning_effort="high", verbosity="low", logit_bias={"50256": -100},
        user="ann", metadata={"a": "b"}, store=True, service_tier={}, api_base="http://elsewhere", prediction={},
    )  # fmt: skip
    assert msgspec.json.decode(body.parameters_json) == {
        "temperature": 0.5, "top_p": 0.9, "stop": ["a"], "seed": 7, "presence_penalty": 1, "frequency_penalty": -1,
        "response_format": {"type": "json_object"}, "parallel_tool_calls": False, "reasoning_effort": "high",
        "verbosity": "low", "logit_bias": {"50256": -100},
    }  # fmt: skip
    assert body.ignored == ("api_base", "prediction")


def test_fields_that_are_not_known_are_named() -> None:
    assert decode(top_k=5, min_p=0.1, stream=False).ignored == ("top_k", "min_p")
    assert decode(store=False).ignored == ()


def test_names_that_do_not_fit_into_a_header_are_not_in_it() -> None:
    assert decode(**{"a b": 1, "top_k": 5, "x" * 65: 1, "\r\nset-cookie": 1}).ignored == ("top_k", OTHERS)
    many = decode(**{f"field_{number}": 1 for number in range(2 * MOST_NAMES)}).ignored
    assert (len(many), many[-1]) == (MOST_NAMES + 1, OTHERS)
    # A prompt of any size does not count towards what the names may take.
    long = [{"role": "user", "content": "x" * 2 * LARGEST_FIELD_BYTES}]
    assert decode(messages=long, top_k=5).ignored == ("top_k",)
    assert decode(top_k=5, padding="x" * LARGEST_FIELD_BYTES).ignored == (OTHERS,)


@pytest.mark.parametrize(
    ("field", "says"),
    [
        ({"functions": [{"name": "f"}]}, "functions is not supported: use tools."),
        ({"function_call": "auto"}, "function_call is not supported: use tools and tool_choice."),
        ({"audio": {"voice": "alloy"}}, "audio is not supported: answers are text."),
        ({"modalities": ["text", "audio"]}, "modalities[1]: This value is not one of those accepted here."),
        ({"logit_bias": {"1": 101}}, "logit_bias: Expected 'float' <= 100.0."),
        ({"logit_bias": {str(number): 1 for number in range(10_000)}}, "logit_bias is larger than 65536 bytes."),
        ({"reasoning_effort": "as much as you can"}, "reasoning_effort: This value is not one of those accepted here."),
    ],
    ids=str,
)
def test_what_is_not_offered_is_refused_with_what_to_use(field: dict[str, Any], says: str) -> None:
    assert refusal_of(**field).message == says


def test_no_stops_in_a_list_are_none() -> None:
    """Frameworks send the list they have, and some models refuse an empty one."""
    assert decode(stop=[]) == decode()


def test_newer_name_of_the_limit_wins() -> None:
    assert decode(max_tokens=10, max_completion_tokens=20.0).max_tokens == 20


def test_empty_tools_are_the_plain_path() -> None:
    body = decode(tools=[], tool_choice="auto", parallel_tool_calls=True)
    assert (body.tools_json, body.tool_choice_json, body.parameters_json) == (b"", b"", b"")


def test_choice_of_tools_is_not_passed_on_without_tools_but_known() -> None:
    for choice in ("none", "auto"):
        body = decode(tool_choice=choice)
        assert (body.tool_choice_json, body.names_tool_choice) == (b"", True)
    assert not decode(tool_choice=None).names_tool_choice
    assert not decode().names_tool_choice


def big(messages: list[dict[str, Any]], **fields: Any) -> bytes:
    return json.dumps({"messages": messages, **fields}, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "body",
    [
        big([{"role": "user", "content": "été \n" * 200_000}]),
        big([USER] * 20_000),
        big([{"role": "user", "content": [{"type": "text", "text": "Hello"}] * 20_000}]),
        big([USER], tools=[TOOL] * 10_000),
    ],
    ids=["long text", "many messages", "many parts", "many tools"],
)
async def test_big_body_is_read_in_steps_and_keeps_its_bytes(body: bytes) -> None:
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count_turns())
    decoded = await requests.decode_chat(body)
    others.cancel()
    assert turns >= 5
    assert decoded.messages_json in body
    assert decoded.tools_json in body


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ([USER] * 5_000 + [{"role": "user", "content": 5}], "messages[5000].content"),
        ([{"role": "user", "content": [{"type": "text", "text": "x" * 200_000}, 5]}], "messages[0].content[1]"),
    ],
)
def test_mistake_in_a_big_body_is_found_at_its_place(wrong: Any, param: str) -> None:
    assert refusal_of(messages=wrong).param == param


@pytest.mark.parametrize("at", [SLICE_BYTES - 1, SLICE_BYTES, 2 * SLICE_BYTES])
def test_bytes_that_are_no_text_are_found_wherever_they_stand(at: int) -> None:
    text = ("é" * 2 * SLICE_BYTES).encode()
    head = b'{"messages":[{"role":"user","content":"'
    whole = head + text + b'"}]}'
    assert decode_chat(whole).messages_json
    assert refusal(whole[:at] + b"\xff" + whole[at:]).message == "The body is not valid UTF-8."


EMPTY_LISTS = b"[" + b",".join([b"[]"] * 450_000) + b"]"
MESSAGES = b'"messages":[{"role":"user","content":"x"}]'


def with_lists(before: bytes, after: bytes = b"") -> bytes:
    return b"{" + before + EMPTY_LISTS + after + b"}"


@pytest.mark.parametrize(
    "body",
    [
        with_lists(MESSAGES + b',"metadata":{"a":', b"}"),
        with_lists(MESSAGES + b',"stream_options":{"a":', b"}"),
        with_lists(MESSAGES + b',"ignored":{"a":', b"}"),
        with_lists(MESSAGES + b',"tools":[{"type":"function","function":{"name":"f","parameters":{"a":', b"}}}]"),
        with_lists(MESSAGES + b',"response_format":{"type":"json_schema","json_schema":{"schema":{"a":', b"}}}"),
    ],
    ids=["metadata", "stream options", "unknown field", "parameters of a tool", "schema of the answer"],
)
def test_lists_that_nobody_reads_are_not_built(body: bytes) -> None:
    tracemalloc.start()
    try:
        # Some fields do not take lists.
        with contextlib.suppress(LegatoError):
            decode_chat(body)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # As lists they would take 25 times as much.
    assert peak_bytes < 8 * len(body)


@pytest.mark.parametrize(
    "body",
    [
        with_lists(b'"messages":'),
        with_lists(b'"messages":[{"role":"user","content":', b"}]"),
        with_lists(MESSAGES + b',"tools":'),
        with_lists(b'"messages":[{"role":"assistant","content":"x","tool_calls":', b"}]"),
    ],
    ids=["messages", "content", "tools", "tool calls"],
)
def test_lists_of_what_is_no_message_are_refused(body: bytes) -> None:
    refusal(body)


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([USER] * (MOST_ELEMENTS + 1), "messages"),
        ([{"role": "user", "content": [{"type": "text", "text": "x"}] * MOST_ELEMENTS}], "messages[0].content"),
        ([{"role": "assistant", "content": "x", "tool_calls": [CALL] * MOST_ELEMENTS}], "messages[0].tool_calls"),
    ],
    ids=["messages", "parts", "calls"],
)
def test_more_messages_parts_and_calls_than_the_most_are_refused(messages: list[dict[str, Any]], param: str) -> None:
    refused = refusal_of(messages=messages)
    assert refused.message == "A request may have at most 100,000 messages, parts and tool calls together."
    assert refused.param == param


def test_most_messages_are_taken() -> None:
    assert decode(messages=[USER] * MOST_ELEMENTS).messages_json


def test_more_tools_than_the_most_are_refused() -> None:
    assert refusal_of(tools=[TOOL] * (MOST_TOOLS + 1)).message == "A request may have at most 10,000 tools."


def test_metadata_is_bounded() -> None:
    decode_chat(b"{" + MESSAGES + b',"metadata":{"a":"' + b"x" * 60_000 + b'"}}')
    with pytest.raises(LegatoError) as refused:
        decode_chat(b"{" + MESSAGES + b',"metadata":{"a":"' + b"x" * 70_000 + b'"}}')
    assert (refused.value.reason, refused.value.param) == (Reason.REQUEST_INVALID, "metadata")
