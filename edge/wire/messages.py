"""Validates the messages and tools of a chat in place: they are passed on as the bytes that arrived."""

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct, UnsetType

from services.chassis.errors import LegatoError, Reason
from services.chassis.timing.deadlines import Yielder


def decode(decoder: msgspec.json.Decoder[Any], given: bytes | Raw, name: str) -> Any:
    try:
        return decoder.decode(given)
    except msgspec.ValidationError as error:
        raise _mistake(str(error), name) from None
    except msgspec.DecodeError:
        raise invalid("The body is not valid JSON.", name or None) from None
    except RecursionError:
        raise invalid("The body is nested too deeply.", name or None) from None


_PLACE = re.compile(r" - at `(?P<path>\$.*)`$")
# The messages of msgspec that contain only types, bounds and names of ours.
_SAFE = re.compile(
    r"(Expected `[^`]+`(, got `[^`]+`|( of length)? [<>]=? -?[0-9.]+)?|Object missing required field `[a-z_]+`)$"
)


def _mistake(sentence: str, name: str) -> LegatoError:
    place = _PLACE.search(sentence)
    # Keys of a dict are the client's own words, so the path stops before them.
    path = (name + place["path"][1:] if place else name).lstrip(".").partition("[...]")[0]
    said = _PLACE.sub("", sentence)
    if not _SAFE.match(said):
        said = "This value is not one of those accepted here"
    return invalid(f"{path or 'body'}: {said}.".replace("`", "'"), path or None)


def invalid(message: str, param: str | None = None) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)


# Limits the number of values in a JSON text before it is decoded.
#
# Two bytes of JSON can be an object of some hundred bytes in memory, and decoding millions of them blocks the event
# loop. So a text with more values than any chat needs is refused and never decoded.

# List elements and object fields, at any depth; and as many lists and objects. A hundred thousand messages with parts
# and calls have fewer.
MOST_VALUES: Final = 500_000

_SLICE_BYTES: Final = 64 * 1024


async def check_values(text_json: bytes, yielder: Yielder, most: int = MOST_VALUES) -> None:
    """Raises if there are too many values. Counts commas, one before each value but the first of a list or object.
    Those in strings are counted as well at first, as this is far cheaper and mostly enough."""
    if len(text_json) <= most:
        return
    commas = openings = 0
    for begin in range(0, len(text_json), _SLICE_BYTES):
        end = begin + _SLICE_BYTES
        commas += text_json.count(b",", begin, end)
        openings += text_json.count(b"[", begin, end) + text_json.count(b"{", begin, end)
        if yielder.is_due(_SLICE_BYTES // 8):
            await yielder.pause()
    if max(commas, openings) > most:
        await _check_outside_strings(text_json, yielder, most)


async def _check_outside_strings(text_json: bytes, yielder: Yielder, most: int) -> None:
    commas = openings = begin = 0
    is_inside = False
    while begin < len(text_json):
        piece = text_json[begin : begin + _SLICE_BYTES]
        begin += len(piece)
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            # The escaped byte is the next one, which then does not end a string.
            begin += 1
        parts = piece.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0
        commas += outside.count(b",")
        openings += outside.count(b"[") + outside.count(b"{")
        if commas > most:
            raise invalid(f"The body has more than {most:,} values.")
        if openings > most:
            raise invalid(f"The body has more than {most:,} lists and objects.")
        if yielder.is_due(len(piece)):
            await yielder.pause()


# The cost of checking one list element, however short, in bytes to read.
BYTES_PER_ELEMENT = 64

# Limits on messages, content parts and tool calls together, and on functions.
MOST_ELEMENTS: Final = 100_000
MOST_TOOLS: Final = 10_000

_NULL = Raw(b"null")
_EMPTY = Raw(b'""')
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


async def check_messages(messages: Raw | UnsetType, yielder: Yielder) -> None:
    if isinstance(messages, UnsetType) or messages == _NULL:
        raise invalid("messages is missing.", "messages")
    raw_messages: list[Raw] = decode(_list_decoder, messages, "messages")
    if not raw_messages:
        raise invalid("messages must not be empty.", "messages")
    elements = _Elements()
    elements.add(len(raw_messages), "messages")
    if yielder.is_due(len(memoryview(messages))):
        await yielder.pause()
    for index, raw_message in enumerate(raw_messages):
        name = f"messages[{index}]"
        message: Message = decode(_message_decoder, raw_message, name)
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
        # As in `check_messages`.
        del part
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
    choice = decode(_tool_choice_decoder, tool_choice_json, "tool_choice")
    if isinstance(choice, _ForcedTool) and choice.function.name not in tool_names:
        raise invalid("tool_choice names a function that is not in tools.", "tool_choice")
    if choice == "required" and not tool_names:
        raise invalid("tool_choice requires a tool, but there are no tools.", "tool_choice")
