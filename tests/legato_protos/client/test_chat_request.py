import math
from typing import Any, cast

import pytest

from legato_protos.chat.v1.chat_pb2 import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    TOOL_MODE_REQUIRED,
    AnswerMessage,
    Chat,
    Citation,
    Message,
    Reasoning,
    Sampling,
    ToolCall,
    ToolChoice,
)
from legato_protos.client.chat_request import (
    ChatOptions,
    assistant,
    chat_from,
    custom_tool,
    function,
    json_schema,
    system,
    tool_result,
    user,
)
from tests.support.forwarded_parameters import FORWARDED

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 40}}}
SCHEMA_JSON = '{"type":"object","properties":{"city":{"type":"string","maxLength":40}}}'
EVERYTHING: ChatOptions = {
    **cast(ChatOptions, FORWARDED),
    "model": "mezzo",
    "tools": [function("weather", "Of a city", SCHEMA, strict=True)],
    "tool_choice": "weather",
    "parallel_tool_calls": False,
    "response_format": json_schema("answer", SCHEMA, strict=True),
    "max_tokens": 7,
    "temperature": 0.0,
    "stop": "END",
    "seed": 0,
    "logit_bias": {"50256": -100.0},
    "reasoning": Reasoning(max_tokens=1_000, enabled=True),
    "prompt_cache_key": "ann",
    "include_reasoning": True,
    "include_obfuscation": False,
    "chat_template_kwargs": {"enable_thinking": False},
}


def test_every_field_of_a_chat_can_be_given() -> None:
    chat = chat_from("Hi", EVERYTHING)
    for message in (chat, chat.sampling):
        given = {field.name for field, _ in message.ListFields()}
        assert given == {field.name for field in message.DESCRIPTOR.fields}
    assert (list(chat.sampling.stop), chat.tool_choice.function_name) == (["END"], "weather")
    assert chat.tools[0].function.parameters_json == SCHEMA_JSON
    assert chat.response_format.json_schema.schema_json == SCHEMA_JSON


def test_a_schema_is_sent_as_it_was_written() -> None:
    schema = {"zone": {"maximum": 2**53 + 1, "title": "Größe"}, "at": {"const": 1.0}}
    text = '{"zone":{"maximum":9007199254740993,"title":"Größe"},"at":{"const":1.0}}'
    for given, sent in ((schema, text), ('{ "b": 1E3, "a": 2 }', '{ "b": 1E3, "a": 2 }')):
        assert function("weather", parameters=given).function.parameters_json == sent
        assert json_schema("answer", given).json_schema.schema_json == sent
    assert function("now").function.parameters_json == ""
    with pytest.raises(ValueError, match="JSON"):
        function("weather", parameters={"maximum": math.inf})


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 3}, 3),
        ({"max_completion_tokens": 3, "max_tokens": 7}, 3),
        ({"max_completion_tokens": None, "max_tokens": 7}, 7),
    ],
)
def test_the_limit_on_output_has_two_names(options: Any, limit: int) -> None:
    assert chat_from("Hi", options).max_tokens == limit


@pytest.mark.parametrize("name", ["max_output_tokens", "max_token", "n"])
def test_an_option_that_does_not_exist_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match=f"no option '{name}'"):
        chat_from("Hi", cast(ChatOptions, {"model": "mezzo", name: 3}))


def test_what_is_not_given_is_absent() -> None:
    assert chat_from("Hi", {}) == Chat(messages=[Message(role=ROLE_USER, text="Hi")], sampling=Sampling())


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("required", ToolChoice(mode=TOOL_MODE_REQUIRED)),
        ("weather", ToolChoice(function_name="weather")),
        (ToolChoice(function_name="auto"), ToolChoice(function_name="auto")),
    ],
)
def test_a_choice_of_tools_is_a_mode_or_a_function(given: str | ToolChoice, meant: ToolChoice) -> None:
    assert chat_from("Hi", {"tool_choice": given}).tool_choice == meant


def test_json_can_be_asked_for_by_its_name() -> None:
    assert chat_from("Hi", {"response_format": "json_object"}).response_format.HasField("json_object")


def test_a_conversation_goes_on_with_the_answer_as_it_came() -> None:
    call = ToolCall(id="call_a", name="weather", arguments="{}")
    answer = AnswerMessage(tool_calls=[call], citations=[Citation(title="A page")])
    turns = [
        system("Be short."),
        user("Weather?"),
        assistant(answer),
        tool_result(call, "Rain"),
        assistant("It rains."),
    ]
    messages = chat_from(turns, {}).messages
    roles = [message.role for message in messages]
    assert roles == [ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, ROLE_ASSISTANT]
    assert messages[2] == Message(role=ROLE_ASSISTANT, tool_calls=[call])
    assert messages[2].WhichOneof("content") is None
    assert (messages[3].tool_call_id, messages[3].text) == ("call_a", "Rain")
    assert assistant(AnswerMessage(text="Hello.")).text == "Hello."


def test_a_custom_tool_has_a_grammar_only_with_its_syntax() -> None:
    plain, formed = custom_tool("patch", "Changes files."), custom_tool("patch", grammar="a+", grammar_syntax="regex")
    assert (plain.custom.name, plain.custom.description, plain.custom.grammar_syntax) == ("patch", "Changes files.", "")
    assert (formed.custom.grammar, formed.custom.grammar_syntax) == ("a+", "regex")
