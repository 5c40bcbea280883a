import asyncio
import contextlib
import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from edge.wire import chat_request as requests
from edge.wire.checked_json import LARGEST_FIELD_BYTES, MOST_NAMES, OTHERS, SLICE_BYTES
from services.chassis.errors import LegatoError, Reason
from tests.edge.wire.chat_bodies import TOOL, USER, decode, decode_chat, refusal, refusal_of


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


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user", "content": 5}, "messages[1].content"),
        ({"role": "user", "content": None}, "messages[1].content"),
        ({"role": "user"}, "messages[1]"),
        ({"role": "owner", "content": "x"}, "messages[1].role"),
        ({"role": "tool", "content": "x"}, "messages[1]"),
        ({"role": "assistant", "content": None}, "messages[1].content"),
        ({"content": "x"}, "messages[1]"),
    ],
)
def test_message_among_plain_ones_is_refused_by_its_place(message: dict[str, Any], param: str) -> None:
    assert refusal_of(messages=[USER, message, USER]).param == param


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "user", "content": "x", "name": "ann"},
        {"role": "developer", "content": "x", "other": [1, 2]},
        {"role": "assistant", "content": None, "refusal": "x"},
        {"role": "tool", "content": "x", "tool_call_id": "call_1"},
    ],
)
def test_message_among_plain_ones_may_be_any_other(message: dict[str, Any]) -> None:
    assert json.loads(decode(messages=[USER, message]).messages_json) == [USER, message]


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


def test_null_is_the_same_as_absent() -> None:
    optional = [
        "model", "stream", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed",
        "presence_penalty", "frequency_penalty", "response_format", "tools", "tool_choice", "parallel_tool_calls", "n",
        "logprobs", "top_logprobs", "stream_options", "user", "metadata", "functions", "function_call", "modalities",
        "audio", "prediction", "web_search_options", "store", "service_tier", "logit_bias", "reasoning_effort", "other",
        "reasoning", "include_reasoning",
    ]  # fmt: skip
    assert decode(**dict.fromkeys(optional)) == decode()


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
    assert body.ignored == ("api_base", "prediction", "service_tier")
    assert (body.shows_reasoning, body.pads_stream) == (None, None)


@pytest.mark.parametrize(
    ("fields", "is_shown", "ignored"),
    [
        ({"include_reasoning": True}, True, ()),
        ({"include_reasoning": False}, False, ()),
        ({"reasoning": {}}, True, ()),
        ({"reasoning": {"exclude": False}}, True, ()),
        ({"reasoning": {"exclude": True}, "include_reasoning": True}, False, ()),
        ({"reasoning": {"effort": "high"}}, True, ()),
        ({"reasoning": {"effort": "high", "exclude": True}}, False, ()),
        ({"reasoning": {"summary": "auto"}}, True, ("reasoning.summary",)),
    ],
)
def test_reasoning_is_shown_where_it_is_asked_for(
    fields: dict[str, Any], is_shown: bool, ignored: tuple[str, ...]
) -> None:
    body = decode(**fields)
    assert (body.shows_reasoning, body.ignored) == (is_shown, ignored)


@pytest.mark.parametrize("wanted", [True, False, None])
def test_stream_is_padded_as_the_client_says(wanted: bool | None) -> None:
    assert decode(stream_options={"include_usage": True, "include_obfuscation": wanted}).pads_stream is wanted


def test_words_for_a_chat_template_are_passed_on_as_they_are() -> None:
    body = decode(chat_template_kwargs={"enable_thinking": False, "budget": 1.50})
    assert body.parameters_json == b'{"chat_template_kwargs":{"enable_thinking": false, "budget": 1.5}}'
    values: list[Any] = [[], "x", 7]
    for wrong in values:
        with pytest.raises(LegatoError) as refusal:
            decode(chat_template_kwargs=wrong)
        assert refusal.value.param == "chat_template_kwargs"


def test_fields_that_are_not_known_are_named() -> None:
    assert decode(top_n=5, min_q=0.1, stream=False).ignored == ("top_n", "min_q")
    assert decode(store=False).ignored == ()


def test_names_that_do_not_fit_into_a_header_are_not_in_it() -> None:
    assert decode(**{"a b": 1, "top_n": 5, "x" * 65: 1, "\r\nset-cookie": 1}).ignored == ("top_n", OTHERS)
    many = decode(**{f"field_{number}": 1 for number in range(2 * MOST_NAMES)}).ignored
    assert (len(many), many[-1]) == (MOST_NAMES + 1, OTHERS)
    # A prompt of any size does not count towards what the names may take.
    long = [{"role": "user", "content": "x" * 2 * LARGEST_FIELD_BYTES}]
    assert decode(messages=long, top_n=5).ignored == ("top_n",)
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
        ({"reasoning": {"exclude": "yes"}}, "reasoning.exclude: Expected 'bool | null', got 'str'."),
        ({"include_reasoning": 1}, "include_reasoning: Expected 'bool | null', got 'int'."),
    ],
    ids=str,
)
def test_what_is_not_offered_is_refused_with_what_to_use(field: dict[str, Any], says: str) -> None:
    assert refusal_of(**field).message == says


def test_cache_key_goes_on_as_a_digest_whatever_it_is() -> None:
    keys = ["ann", "bob", 7, ["ann"], "x" * 100_000]
    digests = {decode(prompt_cache_key=key).prompt_cache_key_digest for key in keys}
    assert {len(digest) for digest in digests} == {32}
    assert len(digests) == len(keys)
    assert decode(prompt_cache_key="ann").ignored == ()
    assert decode(prompt_cache_key=None) == decode()


def test_no_stops_in_a_list_are_none() -> None:
    """Frameworks send the list they have, and some models refuse an empty one."""
    assert decode(stop=[]) == decode()


def test_newer_name_of_the_limit_wins() -> None:
    assert decode(max_tokens=10, max_completion_tokens=20.0).max_tokens == 20


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
def test_lists_that_are_not_read_are_not_built(body: bytes) -> None:
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


def test_metadata_is_bounded() -> None:
    decode_chat(b"{" + MESSAGES + b',"metadata":{"a":"' + b"x" * 60_000 + b'"}}')
    with pytest.raises(LegatoError) as refused:
        decode_chat(b"{" + MESSAGES + b',"metadata":{"a":"' + b"x" * 70_000 + b'"}}')
    assert (refused.value.reason, refused.value.param) == (Reason.REQUEST_INVALID, "metadata")
