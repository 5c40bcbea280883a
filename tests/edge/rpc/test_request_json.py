"""A typed chat becomes the JSON body that a client of the HTTP API would send."""

import json
from typing import Any, Final, cast

import pytest
from google.protobuf.struct_pb2 import Struct

from edge.rpc.request_json import render_chat
from edge.wire.chat_request import MOST_ELEMENTS, MOST_TOOLS, decode_chat
from edge.wire.checked_json import LARGEST_FIELD_BYTES
from legato_protos.chat.v1 import chat_pb2 as pb
from services.chassis.errors import LegatoError, Reason

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"days": {"type": "integer", "maximum": 7, "multipleOf": 0.5}, "at": {"enum": ["noon", None, True]}},
    "required": ["days"],
}


def struct(fields: dict[str, Any]) -> Struct:
    made = Struct()
    made.update(fields)
    return made


USER = pb.Message(role=pb.ROLE_USER, text="Hi")
WEATHER = pb.Tool(function=pb.Function(name="weather", description="Says it.", parameters=struct(SCHEMA), strict=True))


def message(**fields: Any) -> pb.Chat:
    return pb.Chat(messages=[pb.Message(**fields)])


async def test_every_field_has_its_place_in_the_body() -> None:
    call = pb.ToolCall(id="call_1", name="weather", arguments='{"days":2}')
    chat = pb.Chat(
        model="mezzo",
        messages=[
            pb.Message(role=pb.ROLE_SYSTEM, text="Be brief."),
            pb.Message(
                role=pb.ROLE_USER,
                name="ann",
                parts=pb.Parts(parts=[pb.Part(text="How"), pb.Part(text="?", cache_control=pb.CacheControl())]),
            ),
            pb.Message(role=pb.ROLE_ASSISTANT, tool_calls=[call]),
            pb.Message(role=pb.ROLE_TOOL, tool_call_id="call_1", text="rain"),
            pb.Message(role=pb.ROLE_ASSISTANT, refusal="No."),
        ],
        tools=[WEATHER, pb.Tool(function=pb.Function(name="now"), cache_control=pb.CacheControl(ttl="1h"))],
        tool_choice=pb.ToolChoice(function_name="weather"),
        parallel_tool_calls=False,
        response_format=pb.ResponseFormat(json_schema=pb.JsonSchemaFormat(name="day", schema=struct(SCHEMA))),
        max_tokens=64,
        sampling=pb.Sampling(temperature=0, top_p=0.5, stop=["."], seed=7, logit_bias={"50256": -100, "11": 0.5}),
        reasoning_effort="low",
        verbosity="high",
        prompt_cache_key="ann",
    )
    assert json.loads(await render_chat(chat, is_streamed=True)) == {
        "model": "mezzo",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "name": "ann",
                "content": [
                    {"type": "text", "text": "How"},
                    {"type": "text", "text": "?", "cache_control": {"type": "ephemeral"}},
                ],
            },
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"days":2}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
            {"role": "assistant", "refusal": "No."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather", "description": "Says it.", "parameters": SCHEMA, "strict": True,
                },
            },
            {
                "type": "function",
                "function": {"name": "now"},
                "cache_control": {"type": "ephemeral", "ttl": "1h"},
            },
        ],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
        "response_format": {"type": "json_schema", "json_schema": {"name": "day", "schema": SCHEMA}},
        "max_tokens": 64,
        "temperature": 0,
        "top_p": 0.5,
        "stop": ["."],
        "seed": 7,
        "logit_bias": {"11": 0.5, "50256": -100},
        "reasoning_effort": "low",
        "verbosity": "high",
        "prompt_cache_key": "ann",
        "stream": True,
    }  # fmt: skip


async def test_whole_numbers_of_a_schema_stay_integers_and_equal_schemas_have_equal_bytes() -> None:
    turned = pb.Tool()
    turned.CopyFrom(WEATHER)
    turned.function.parameters.Clear()
    turned.function.parameters.update(dict(reversed(SCHEMA.items())))
    rendered = [await render_chat(pb.Chat(tools=[tool]), is_streamed=False) for tool in (WEATHER, turned)]
    assert rendered[0] == rendered[1]
    assert b'"maximum":7,' in rendered[0]
    assert b'"multipleOf":0.5' in rendered[0]


@pytest.mark.parametrize(
    ("chat", "param"),
    [
        (pb.Chat(), "messages"),
        (message(text="Hi"), "messages[0]"),
        (message(role=pb.ROLE_USER), "messages[0]"),
        (message(role=pb.ROLE_USER, parts=pb.Parts(parts=[pb.Part()])), "messages[0].content"),
        (message(role=pb.ROLE_USER, parts=pb.Parts()), "messages[0].content"),
        (message(role=pb.ROLE_TOOL, text="rain"), "messages[0]"),
        (message(role=pb.ROLE_ASSISTANT), "messages[0].content"),
        (pb.Chat(messages=[USER], tools=[pb.Tool()]), "tools[0]"),
        (pb.Chat(messages=[USER], tools=[pb.Tool(function=pb.Function(name="a b"))]), "tools[0].function.name"),
        (pb.Chat(messages=[USER], tool_choice=pb.ToolChoice(mode=pb.TOOL_MODE_REQUIRED)), "tool_choice"),
        (pb.Chat(messages=[USER], tool_choice=pb.ToolChoice(mode=cast(Any, 99))), "tool_choice"),
        (pb.Chat(messages=[USER], max_tokens=0), "max_tokens"),
        (pb.Chat(messages=[USER], sampling=pb.Sampling(temperature=3)), "temperature"),
        (pb.Chat(messages=[USER], sampling=pb.Sampling(top_p=float("nan"))), "top_p"),
        (pb.Chat(messages=[USER], sampling=pb.Sampling(logit_bias={"1": 101})), "logit_bias"),
    ],
)
async def test_a_mistake_is_named_by_its_path_in_the_json_body(chat: pb.Chat, param: str) -> None:
    with pytest.raises(LegatoError) as refused:
        await decode_chat(await render_chat(chat, is_streamed=False))
    assert (refused.value.reason, refused.value.param) == (Reason.REQUEST_INVALID, param)


async def test_a_schema_with_a_number_that_json_does_not_have_is_refused() -> None:
    chat = pb.Chat(messages=[USER], tools=[WEATHER])
    chat.tools[0].function.parameters["default"] = float("inf")
    with pytest.raises(LegatoError) as refused:
        await render_chat(chat, is_streamed=False)
    assert refused.value.param == "tools[0].function.parameters"


async def test_what_is_not_set_is_left_to_the_model() -> None:
    body = await decode_chat(await render_chat(pb.Chat(messages=[USER]), is_streamed=False))
    assert (body.model, body.stream, body.max_tokens, body.parameters_json) == ("auto", False, None, b"")


AS_WRITTEN = '{ "zone":{"type":"integer","maximum":9007199254740993}, "at":1.0, "at":[1E400,"\\u00e9é"] }'


def format_of(**fields: Any) -> pb.ResponseFormat:
    return pb.ResponseFormat(json_schema=pb.JsonSchemaFormat(name="day", **fields))


def tool_of(**fields: Any) -> pb.Tool:
    return pb.Tool(function=pb.Function(name="weather", **fields))


async def test_a_schema_that_is_given_as_text_is_passed_on_byte_for_byte() -> None:
    chat = pb.Chat(
        messages=[USER],
        tools=[tool_of(parameters_json=AS_WRITTEN, description="Says it.")],
        response_format=format_of(schema_json=AS_WRITTEN, strict=True),
    )
    body = await decode_chat(await render_chat(chat, is_streamed=False))
    assert f'"parameters":{AS_WRITTEN}'.encode() in body.tools_json
    assert f'"schema":{AS_WRITTEN}'.encode() in body.parameters_json
    assert b"_json" not in body.tools_json + body.parameters_json


@pytest.mark.parametrize(
    "text", ["{", "[]", "null", '"{}"', "{} {}", '{},"strict":false', '{"a":\x01}', '{"a":' * 2_000]
)
async def test_a_text_that_is_no_json_object_is_refused_by_the_name_of_its_field(text: str) -> None:
    for chat, param in (
        (pb.Chat(messages=[USER], tools=[tool_of(parameters_json=text)]), "tools[0].function.parameters_json"),
        (
            pb.Chat(messages=[USER], response_format=format_of(schema_json=text)),
            "response_format.json_schema.schema_json",
        ),
    ):
        with pytest.raises(LegatoError) as refused:
            await render_chat(chat, is_streamed=False)
        assert (refused.value.reason, refused.value.param) == (Reason.REQUEST_INVALID, param)
        assert param in refused.value.message


async def test_a_schema_is_given_once() -> None:
    for chat, param in (
        (
            pb.Chat(messages=[USER], tools=[tool_of(parameters_json="{}", parameters=struct(SCHEMA))]),
            "tools[0].function.parameters_json",
        ),
        (
            pb.Chat(messages=[USER], response_format=format_of(schema_json="{}", schema=Struct())),
            "response_format.json_schema.schema_json",
        ),
    ):
        with pytest.raises(LegatoError, match="not both") as refused:
            await render_chat(chat, is_streamed=False)
        assert (refused.value.reason, refused.value.param) == (Reason.REQUEST_INVALID, param)


def many_parts(count: int) -> pb.Parts:
    # Each empty part has two bytes.
    return pb.Parts.FromString(b"\x0a\x00" * count)


LARGE_LIST: Final = Struct()
LARGE_LIST.update({"enum": [None] * LARGEST_FIELD_BYTES})


@pytest.mark.parametrize(
    ("chat", "param"),
    [
        (pb.Chat(messages=[USER] * (MOST_ELEMENTS + 1)), "messages"),
        (message(role=pb.ROLE_USER, parts=many_parts(MOST_ELEMENTS + 1)), "messages[0].content"),
        (message(role=pb.ROLE_ASSISTANT, tool_calls=[pb.ToolCall()] * (MOST_ELEMENTS + 1)), "messages[0].tool_calls"),
        (pb.Chat(messages=[USER], tools=[pb.Tool()] * (MOST_TOOLS + 1)), "tools"),
        (pb.Chat(messages=[USER], tools=[tool_of(parameters=LARGE_LIST)]), "tools[0].function.parameters"),
        (
            pb.Chat(messages=[USER], sampling=pb.Sampling(logit_bias={str(n): 1 for n in range(LARGEST_FIELD_BYTES)})),
            "logit_bias",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
async def test_a_small_message_of_very_many_values_is_refused_before_it_is_rendered(chat: pb.Chat, param: str) -> None:
    with pytest.raises(LegatoError) as refused:
        await render_chat(chat, is_streamed=False)
    assert (refused.value.reason, refused.value.param) == (Reason.REQUEST_INVALID, param)
