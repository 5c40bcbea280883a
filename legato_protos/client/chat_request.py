"""Builds chats from Python's own types."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

from legato_protos.chat.v1.chat_pb2 import (
    ROLE_ASSISTANT,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    AnswerMessage,
    Chat,
    CustomTool,
    Function,
    JsonObjectFormat,
    JsonSchemaFormat,
    Message,
    Reasoning,
    ResponseFormat,
    Sampling,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMode,
)
from legato_protos.client.options import check_names

Messages = str | Message | Iterable[Message]
# A JSON schema. A text is sent as it is, and a mapping in its own order: answers have their fields in this order.
Schema = str | Mapping[str, Any]


class ChatOptions(TypedDict, total=False):
    """All that a chat may have beside its messages; what is left out is left to the service and the model."""

    model: str
    tools: Iterable[Tool]
    # "auto", "none", "required", or the name of the function that the model has to call.
    tool_choice: str | ToolChoice
    parallel_tool_calls: bool
    response_format: Literal["json_object"] | ResponseFormat
    max_completion_tokens: int
    # The same, by its older name.
    max_tokens: int
    temperature: float
    top_p: float
    stop: str | Sequence[str]
    seed: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[str, float]
    top_k: int
    min_p: float
    repetition_penalty: float
    reasoning_effort: str
    reasoning: Reasoning
    verbosity: str
    prompt_cache_key: str
    # Whether the answer is to tell what the model thinks.
    include_reasoning: bool
    # Whether a stream is padded, so that the sizes of its messages do not tell its words.
    include_obfuscation: bool
    # What the chat template of a server of open models is given, such as {"enable_thinking": False}.
    chat_template_kwargs: Schema


# Those that are given in another form than their fields have.
_CONVERTED: Final = ("messages", "tools", "tool_choice", "response_format", "max_tokens", "stop")


def system(text: str) -> Message:
    return Message(role=ROLE_SYSTEM, text=text)


def user(text: str, *, name: str = "") -> Message:
    return Message(role=ROLE_USER, text=text, name=name)


def assistant(answer: str | AnswerMessage, *, tool_calls: Iterable[ToolCall] = ()) -> Message:
    """Builds the message of an earlier turn, from its text or from the answer as it came."""
    if isinstance(answer, str):
        return Message(role=ROLE_ASSISTANT, text=answer, tool_calls=tool_calls)
    message = Message(
        role=ROLE_ASSISTANT,
        refusal=answer.refusal,
        tool_calls=answer.tool_calls,
        reasoning=answer.reasoning,
        reasoning_data=answer.reasoning_data,
    )
    if answer.text:
        message.text = answer.text
    return message


def tool_result(call: str | ToolCall, text: str) -> Message:
    """Builds the message that answers a tool call, which may be named by its id."""
    return Message(role=ROLE_TOOL, text=text, tool_call_id=call if isinstance(call, str) else call.id)


def function(name: str, description: str = "", parameters: Schema | None = None, *, strict: bool | None = None) -> Tool:
    """Builds a tool; `parameters` is a JSON schema."""
    schema = "" if parameters is None else _to_json(parameters)
    return Tool(function=Function(name=name, description=description, parameters_json=schema, strict=strict))


def custom_tool(name: str, description: str = "", *, grammar: str = "", grammar_syntax: str = "lark") -> Tool:
    """Builds a tool whose input is any text, or text of a grammar in the syntax `lark` or `regex`."""
    syntax = grammar_syntax if grammar else ""
    return Tool(custom=CustomTool(name=name, description=description, grammar_syntax=syntax, grammar=grammar))


def json_schema(name: str, schema: Schema, *, description: str = "", strict: bool | None = None) -> ResponseFormat:
    """Builds the response format of an answer that is to have this JSON schema."""
    form = JsonSchemaFormat(name=name, schema_json=_to_json(schema), description=description, strict=strict)
    return ResponseFormat(json_schema=form)


def chat_from(messages: Messages, options: ChatOptions) -> Chat:
    """Builds the chat; a string is one message of the user."""
    check_names(options, ChatOptions)
    if isinstance(messages, str):
        messages = user(messages)
    stop = options.get("stop", ())
    max_tokens, template_kwargs = options.get("max_completion_tokens"), options.get("chat_template_kwargs")
    return Chat(
        messages=[messages] if isinstance(messages, Message) else messages,
        tools=options.get("tools", ()),
        tool_choice=_tool_choice(options.get("tool_choice")),
        response_format=_response_format(options.get("response_format")),
        max_tokens=options.get("max_tokens") if max_tokens is None else max_tokens,
        chat_template_kwargs_json="" if template_kwargs is None else _to_json(template_kwargs),
        sampling=Sampling(stop=[stop] if isinstance(stop, str) else stop, **_given(Sampling, options)),
        **_given(Chat, options),
    )


def _given(kind: type[Chat] | type[Sampling], options: ChatOptions) -> dict[str, Any]:
    """Returns the options that are fields of a message under the same name, as they are."""
    return {
        field.name: options[field.name]  # type: ignore[literal-required]
        for field in kind.DESCRIPTOR.fields
        if field.name in options and field.name not in _CONVERTED
    }


def _tool_choice(choice: str | ToolChoice | None) -> ToolChoice | None:
    if not isinstance(choice, str):
        return choice
    if choice in ("auto", "none", "required"):
        return ToolChoice(mode=ToolMode.Value(f"TOOL_MODE_{choice.upper()}"))
    return ToolChoice(function_name=choice)


def _response_format(given: Literal["json_object"] | ResponseFormat | None) -> ResponseFormat | None:
    return ResponseFormat(json_object=JsonObjectFormat()) if isinstance(given, str) else given


def _to_json(schema: Schema) -> str:
    if isinstance(schema, str):
        return schema
    return json.dumps(dict(schema), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
