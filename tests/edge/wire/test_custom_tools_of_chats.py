"""Custom tools in the body of a chat: what models are told of them."""

import json
from typing import Any, Final

import msgspec
import pytest

from edge.wire.chat_request import ChatBody, decode_chat
from services.chassis.errors import LegatoError

PATCH: Final[dict[str, Any]] = {"type": "custom", "custom": {"name": "patch", "description": "Changes files."}}
WEATHER: Final[dict[str, Any]] = {"type": "function", "function": {"name": "weather"}, "cache_control": {"type": "x"}}
QUESTION: Final = {"role": "user", "content": 'A "custom" word.'}


async def decoded(*messages: dict[str, Any], **fields: Any) -> ChatBody:
    return await decode_chat(json.dumps({"messages": [QUESTION, *messages], **fields}).encode())


async def test_tool_is_told_as_a_function_with_one_string() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "lark", "definition": 'start: "a"'}}
    formed = {"type": "custom", "custom": {**PATCH["custom"], "format": grammar}, "cache_control": {"type": "y"}}
    body = await decoded(tools=[WEATHER, formed])
    weather, patch = msgspec.json.decode(body.tools_json)
    assert (weather, sorted(body.custom_tools), body.has_tools) == (WEATHER, ["patch"], True)
    assert (patch["type"], patch["cache_control"], patch["function"]["name"]) == ("function", {"type": "y"}, "patch")
    assert patch["function"]["description"].startswith("Changes files.\n\nThe input must match this grammar (lark):")
    assert patch["function"]["parameters"]["required"] == ["input"]


@pytest.mark.parametrize("others", [[], [WEATHER]])
async def test_choice_names_the_function(others: list[Any]) -> None:
    chosen = {"type": "custom", "custom": {"name": "patch"}}
    function = {"type": "function", "function": {"name": "patch"}}
    body = await decoded(tools=[PATCH, *others], tool_choice=chosen)
    assert msgspec.json.decode(body.tool_choice_json) == function
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [chosen]}}
    body = await decoded(tools=[PATCH, *others], tool_choice=allowed)
    assert msgspec.json.decode(body.tool_choice_json)["allowed_tools"] == {"mode": "required", "tools": [function]}


async def test_calls_of_earlier_turns_are_those_of_the_function() -> None:
    calls = [
        {"id": "call_1", "type": "custom", "custom": {"name": "patch", "input": 'a\n"b"'}},
        {"id": "call_2", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
    ]
    said = {"role": "assistant", "content": None, "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
    body = await decoded(said, result, tools=[PATCH, WEATHER])
    question, told, last = msgspec.json.decode(body.messages_json)
    assert (question, last, told["tool_calls"][1]) == (QUESTION, result, calls[1])
    called = told["tool_calls"][0]
    assert (called["id"], called["type"], called["function"]["name"]) == ("call_1", "function", "patch")
    assert json.loads(called["function"]["arguments"]) == {"input": 'a\n"b"'}


async def test_chat_without_any_keeps_its_bytes() -> None:
    messages = b'[ {"role":"user", "content":"custom"} ]'
    body = await decode_chat(b'{"messages":%b,"tools": [{"type":"function","function":{"name":"a"}} ]}' % messages)
    assert (body.messages_json, body.custom_tools) == (messages, frozenset())
    assert body.tools_json == b'[{"type":"function","function":{"name":"a"}} ]'


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "custom": {"name": "a b"}}]}, "tools[0].custom.name"),
        ({"tools": [PATCH], "tool_choice": {"type": "custom", "custom": {"name": "other"}}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ],
)
async def test_tool_that_is_none_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(LegatoError) as refusal:
        await decoded(**fields)
    assert refusal.value.param == param


async def test_call_without_what_its_type_says_is_refused() -> None:
    for call in ({"id": "call_1", "type": "custom"}, {"id": "call_1"}):
        with pytest.raises(LegatoError) as refusal:
            await decoded({"role": "assistant", "tool_calls": [call]})
        assert refusal.value.param == "messages[1].tool_calls[0]"
