import pytest
from google.protobuf.json_format import MessageToDict

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
    Sampling,
    ToolCall,
    ToolChoice,
)
from legato_protos.client.chat_request import (
    ChatOptions,
    assistant,
    chat_from,
    function,
    json_schema,
    system,
    tool_result,
    user,
)

SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 40}}}
EVERYTHING: ChatOptions = {
    "model": "mezzo",
    "tools": [function("weather", "Of a city", SCHEMA, strict=True)],
    "tool_choice": "weather",
    "parallel_tool_calls": False,
    "response_format": json_schema("answer", SCHEMA, strict=True),
    "max_tokens": 7,
    "temperature": 0.0,
    "top_p": 0.5,
    "stop": "END",
    "seed": 0,
    "presence_penalty": -1.0,
    "frequency_penalty": 1.0,
    "logit_bias": {"50256": -100.0},
    "reasoning_effort": "low",
    "verbosity": "high",
    "prompt_cache_key": "ann",
}


def test_every_field_of_a_chat_can_be_given() -> None:
    chat = chat_from("Hi", EVERYTHING)
    for message in (chat, chat.sampling):
        given = {field.name for field, _ in message.ListFields()}
        assert given == {field.name for field in message.DESCRIPTOR.fields}
    assert (list(chat.sampling.stop), chat.tool_choice.function_name) == (["END"], "weather")
    assert MessageToDict(chat.tools[0].function.parameters) == SCHEMA
    assert MessageToDict(chat.response_format.json_schema.schema) == SCHEMA


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
