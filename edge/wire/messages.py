"""Validates the messages of a chat in place: they are passed on as the bytes that arrived."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Raw, Struct, UnsetType

from edge.wire.validation import FieldDecoder, invalid
from services.chassis.timing.deadlines import Yielder

# The cost of checking one list element, however short, in bytes to read.
BYTES_PER_ELEMENT = 64

# Limits messages, content parts and tool calls together.
MOST_ELEMENTS: Final = 100_000

_NULL = Raw(b"null")
_EMPTY = Raw(b'""')
_QUOTE = ord('"')


# A prompt may have 100,000 of these structs. They form no reference cycles, so gc=False spares the collector them.
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


_list_decoder = FieldDecoder[list[Raw]](list[Raw])
_content_decoder = FieldDecoder[list[Raw]](Content)
_part_decoder = FieldDecoder[TextPart](TextPart)
_tool_call_decoder = FieldDecoder[ToolCall](ToolCall)
_message_decoder = FieldDecoder[Message](Message)


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


async def check_messages(messages: Raw | UnsetType, yielder: Yielder) -> None:
    if isinstance(messages, UnsetType) or messages == _NULL:
        raise invalid("messages is missing.", "messages")
    raw_messages = _list_decoder.decode(messages, "messages")
    if not raw_messages:
        raise invalid("messages must not be empty.", "messages")
    elements = _Elements()
    elements.add(len(raw_messages), "messages")
    if yielder.is_due(len(memoryview(messages))):
        await yielder.pause()
    for index, raw_message in enumerate(raw_messages):
        name = f"messages[{index}]"
        message = _message_decoder.decode(raw_message, name)
        content, raw_calls = message.content, message.tool_calls
        if isinstance(message, AssistantMessage) and content == _NULL:
            if not raw_calls and not message.refusal:
                raise invalid("An assistant message needs content, tool_calls or a refusal.", f"{name}.content")
            content = _EMPTY
        # Its texts may be long, and were only decoded to be checked: they do not stay while others have their turn.
        del message
        if yielder.is_due(len(memoryview(raw_message)) + BYTES_PER_ELEMENT):
            await yielder.pause()
        if raw_calls:
            await _check_calls(raw_calls, name, elements, yielder)
        # A string was validated when the body was decoded, and may be long.
        if memoryview(content)[0] != _QUOTE:
            await _check_parts(content, f"{name}.content", elements, yielder)


async def _check_calls(raw_calls: list[Raw], name: str, elements: _Elements, yielder: Yielder) -> None:
    elements.add(len(raw_calls), f"{name}.tool_calls")
    for index, raw_call in enumerate(raw_calls):
        _tool_call_decoder.decode(raw_call, f"{name}.tool_calls[{index}]")
        if yielder.is_due(len(memoryview(raw_call)) + BYTES_PER_ELEMENT):
            await yielder.pause()


async def _check_parts(content: Raw, name: str, elements: _Elements, yielder: Yielder) -> None:
    raw_parts = _content_decoder.decode(content, name)
    elements.add(len(raw_parts), name)
    for index, raw_part in enumerate(raw_parts):
        part = _part_decoder.decode(raw_part, f"{name}[{index}]")
        if part.type != "text" or part.text is None:
            raise invalid("Content parts must be of the form {type: 'text', text: string}.", name)
        # As in `check_messages`.
        del part
        if yielder.is_due(len(memoryview(raw_part)) + BYTES_PER_ELEMENT):
            await yielder.pause()
