"""Validates the messages and tools of a chat in place: they are passed on as the bytes that arrived."""

import re
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from edge.wire.validation import decode, invalid
from services.chassis.timing.yielding import Yielder

# The cost of checking one list element, however short, in bytes to read.
BYTES_PER_ELEMENT = 64

# Limits on messages, content parts and tool calls together, and on functions.
MOST_ELEMENTS: Final = 100_000
MOST_TOOLS: Final = 10_000

_NULL = Raw(b"null")
_QUOTE = ord('"')
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


# A prompt may have 100,000 of the structs below. They form no reference cycles, so gc=False spares the collector them.


class UnreadObject(Struct, gc=False):
    """Any object. Its fields are not used here, and so not decoded."""


class TextPart(Struct, gc=False):
    type: str
    text: str | None = None


# Validated after the rest of a message.
Content = str | Annotated[list[Raw], Meta(min_length=1)]


class CalledFunction(Struct, gc=False):
    name: str
    arguments: str


class ToolCall(Struct, gc=False):
    id: Annotated[str, Meta(min_length=1)]
    function: CalledFunction
    type: Literal["function"] = "function"


# Only the assistant calls tools. Null is the same as absent, and an empty list nearly so.
NoCalls = Annotated[list[Raw], Meta(max_length=0)] | None


class _Said(Struct, kw_only=True, gc=False):
    """The fields of any message. Those that a role has no use for are passed on too, so their types are checked."""

    content: Raw
    name: str | None = None
    tool_calls: NoCalls = None
    tool_call_id: str | None = None
    refusal: str | None = None


class SystemMessage(_Said, tag_field="role", tag="system", gc=False): ...


class DeveloperMessage(_Said, tag_field="role", tag="developer", gc=False): ...


class UserMessage(_Said, tag_field="role", tag="user", gc=False): ...


class ToolMessage(_Said, tag_field="role", tag="tool", kw_only=True, gc=False):
    # Required for this role.
    tool_call_id: Annotated[str, Meta(min_length=1)]


class AssistantMessage(Struct, tag_field="role", tag="assistant", gc=False):
    content: Raw = _NULL
    name: str | None = None
    tool_calls: list[Raw] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionDefinition(Struct):
    name: str
    description: str | None = None
    parameters: UnreadObject | None = None
    strict: bool | None = None


class ToolDefinition(Struct):
    type: Literal["function"]
    function: FunctionDefinition


class _NamedFunction(Struct):
    name: str


class _ForcedTool(Struct):
    type: Literal["function"]
    function: _NamedFunction


_list_decoder = msgspec.json.Decoder(list[Raw])
_content_decoder: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content)
_part_decoder = msgspec.json.Decoder(TextPart)
_tool_call_decoder = msgspec.json.Decoder(ToolCall)
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_tool_decoder = msgspec.json.Decoder(ToolDefinition)
_tool_choice_decoder = msgspec.json.Decoder(Literal["auto", "none", "required"] | _ForcedTool)


class _Elements:
    """Counts the messages, parts and calls of one request."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def add(self, count: int, name: str) -> None:
        self._count += count
        if self._count > MOST_ELEMENTS:
            raise invalid(
                f"A request may have at most {MOST_ELEMENTS:,} messages, parts and tool calls together.", name
            )


async def check_messages(messages_json: bytes, yielder: Yielder) -> None:
    if not messages_json:
        raise invalid("messages is missing.", "messages")
    raw_messages: list[Raw] = decode(_list_decoder, messages_json, "messages")
    if not raw_messages:
        raise invalid("messages must not be empty.", "messages")
    elements = _Elements()
    elements.add(len(raw_messages), "messages")
    if yielder.is_due(len(messages_json)):
        await yielder.pause()
    for index, raw_message in enumerate(raw_messages):
        name = f"messages[{index}]"
        message: Message = decode(_message_decoder, raw_message, name)
        if yielder.is_due(len(memoryview(raw_message)) + BYTES_PER_ELEMENT):
            await yielder.pause()
        if isinstance(message, AssistantMessage):
            await _check_calls(message, name, elements, yielder)
            if message.content == _NULL:
                continue
        # A string was validated when the body was decoded, and may be long.
        if memoryview(message.content)[0] != _QUOTE:
            await _check_parts(message.content, f"{name}.content", elements, yielder)


async def _check_calls(message: AssistantMessage, name: str, elements: _Elements, yielder: Yielder) -> None:
    if message.content == _NULL and not message.tool_calls and not message.refusal:
        raise invalid("An assistant message needs content, tool_calls or a refusal.", f"{name}.content")
    raw_calls = message.tool_calls or ()
    elements.add(len(raw_calls), f"{name}.tool_calls")
    for index, raw_call in enumerate(raw_calls):
        decode(_tool_call_decoder, raw_call, f"{name}.tool_calls[{index}]")
        if yielder.is_due(len(memoryview(raw_call)) + BYTES_PER_ELEMENT):
            await yielder.pause()


async def _check_parts(content: Raw, name: str, elements: _Elements, yielder: Yielder) -> None:
    raw_parts: list[Raw] = decode(_content_decoder, content, name)
    elements.add(len(raw_parts), name)
    for index, raw_part in enumerate(raw_parts):
        part: TextPart = decode(_part_decoder, raw_part, f"{name}[{index}]")
        if part.type != "text" or part.text is None:
            raise invalid("Content parts must be of the form {type: 'text', text: string}.", name)
        if yielder.is_due(len(memoryview(raw_part)) + BYTES_PER_ELEMENT):
            await yielder.pause()


async def check_tools(tools_json: bytes, yielder: Yielder) -> frozenset[str]:
    raw_tools: list[Raw] = decode(_list_decoder, tools_json, "tools")
    if len(raw_tools) > MOST_TOOLS:
        raise invalid(f"A request may have at most {MOST_TOOLS:,} tools.", "tools")
    if yielder.is_due(len(tools_json)):
        await yielder.pause()
    names = set()
    for index, raw_tool in enumerate(raw_tools):
        tool: ToolDefinition = decode(_tool_decoder, raw_tool, f"tools[{index}]")
        if not _TOOL_NAME.fullmatch(tool.function.name):
            raise invalid(
                "A function's name must have 1 to 64 of the characters a-z, A-Z, 0-9, _ and -.",
                f"tools[{index}].function.name",
            )
        names.add(tool.function.name)
        if yielder.is_due(len(memoryview(raw_tool)) + BYTES_PER_ELEMENT):
            await yielder.pause()
    return frozenset(names)


def check_tool_choice(tool_choice_json: bytes, tool_names: frozenset[str]) -> None:
    if not tool_choice_json:
        return
    choice = decode(_tool_choice_decoder, tool_choice_json, "tool_choice")
    if isinstance(choice, _ForcedTool) and choice.function.name not in tool_names:
        raise invalid("tool_choice names a function that is not in tools.", "tool_choice")
    if choice == "required" and not tool_names:
        raise invalid("tool_choice requires a tool, but there are no tools.", "tool_choice")
