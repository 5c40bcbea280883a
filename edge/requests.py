"""What a client sends to `/v1/chat/completions`, checked.

Messages, tools and tool_choice are checked in full and then travel on as the bytes they came in. What a message of ours
says about a mistake names the place and the types, and never quotes what was sent.
"""

import codecs
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from services.chassis.errors import LegatoError, Reason
from services.chassis.turns import Turns

# A body that is larger is read in steps, between which other chats have their turn. To read this much takes less than
# a millisecond.
SLICE_BYTES = 64 * 1024
# What it takes to check an element of a list, however short, as if it were bytes to read.
BYTES_PER_ELEMENT = 64

_NULL = Raw(b"null")
_QUOTE = ord('"')
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


# Of the structs below a prompt may have a hundred thousand. They form no circles: the collector need not follow them.


class TextPart(Struct, gc=False):
    type: str
    text: str | None = None


# Checked when the rest of a message has been.
Content = str | Annotated[list[Raw], Meta(min_length=1)]


class CalledFunction(Struct, gc=False):
    name: str
    arguments: str


class ToolCall(Struct, gc=False):
    id: Annotated[str, Meta(min_length=1)]
    function: CalledFunction
    type: Literal["function"] = "function"


class SystemMessage(Struct, tag_field="role", tag="system", gc=False):
    content: Raw


class DeveloperMessage(Struct, tag_field="role", tag="developer", gc=False):
    content: Raw


class UserMessage(Struct, tag_field="role", tag="user", gc=False):
    content: Raw


class AssistantMessage(Struct, tag_field="role", tag="assistant", gc=False):
    content: Raw = _NULL
    tool_calls: list[Raw] | None = None


class ToolMessage(Struct, tag_field="role", tag="tool", gc=False):
    content: Raw
    tool_call_id: Annotated[str, Meta(min_length=1)]


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class FunctionDefinition(Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolDefinition(Struct):
    type: Literal["function"]
    function: FunctionDefinition


class _NamedFunction(Struct):
    name: str


class _ForcedTool(Struct):
    type: Literal["function"]
    function: _NamedFunction


class _ResponseFormat(Struct):
    type: Literal["text", "json_object", "json_schema"]


_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class _Body(Struct):
    """The fields we know; all others are ignored, and none of those travels on. Null is the same as absent."""

    messages: Raw | UnsetType = UNSET
    model: str | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    stop: str | Annotated[list[str], Meta(max_length=4)] | None = None
    seed: int | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    response_format: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    tool_choice: Raw | UnsetType = UNSET
    parallel_tool_calls: bool | None = None
    n: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stream_options: dict[str, Any] | None = None
    user: str | None = None
    metadata: dict[str, Any] | None = None


class ChatBody(Struct, frozen=True):
    model: str
    stream: bool
    max_tokens: int | None
    messages_json: bytes
    # Empty: the plain path.
    tools_json: bytes
    tool_choice_json: bytes
    parameters_json: bytes


_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_body_decoder = msgspec.json.Decoder(_Body)
_list_decoder = msgspec.json.Decoder(list[Raw])
_content_decoder: msgspec.json.Decoder[Content] = msgspec.json.Decoder(Content)
_part_decoder = msgspec.json.Decoder(TextPart)
_tool_call_decoder = msgspec.json.Decoder(ToolCall)
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_tool_decoder = msgspec.json.Decoder(ToolDefinition)
_tool_choice_decoder = msgspec.json.Decoder(Literal["auto", "none", "required"] | _ForcedTool)
_response_format_decoder = msgspec.json.Decoder(_ResponseFormat)

_FORWARDED = ("temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty")


async def decode_chat(body: bytes) -> ChatBody:
    turns = Turns(SLICE_BYTES)
    await _check_utf8(body, turns)
    decoded: _Body = _decode(_body_decoder, body, "")
    if turns.are_due(len(body)):
        await turns.rest()
    _refuse_what_is_not_offered(decoded)
    messages_json = _present(decoded.messages)
    await _check_messages(messages_json, turns)
    tools_json = _present(decoded.tools)
    tool_choice_json = _present(decoded.tool_choice)
    tool_names = await _check_tools(tools_json, turns)
    _check_tool_choice(tool_choice_json, tool_names)
    return ChatBody(
        model=decoded.model or "auto",
        stream=bool(decoded.stream),
        max_tokens=_max_tokens(decoded),
        messages_json=messages_json,
        tools_json=tools_json if tool_names else b"",
        tool_choice_json=tool_choice_json if tool_names else b"",
        parameters_json=_parameters(decoded, with_tools=bool(tool_names)),
    )


async def _check_utf8(body: bytes, turns: Turns) -> None:
    """The parts that stay bytes are not looked at character by character later on."""
    try:
        if len(body) <= SLICE_BYTES:
            body.decode()
            return
        decoder, view = _Utf8Decoder(), memoryview(body)
        for begin in range(0, len(body), SLICE_BYTES):
            end = begin + SLICE_BYTES
            decoder.decode(view[begin:end], final=end >= len(body))
            if turns.are_due((min(end, len(body)) - begin) // 4):
                await turns.rest()
    except UnicodeDecodeError:
        raise _invalid("The body is not valid UTF-8.") from None


def _refuse_what_is_not_offered(body: _Body) -> None:
    if body.n is not None and body.n != 1:
        raise _invalid("This service gives one choice: n must be 1.", "n")
    if body.logprobs:
        raise _invalid("This service offers no logprobs.", "logprobs")
    if body.top_logprobs:
        raise _invalid("This service offers no logprobs.", "top_logprobs")


async def _check_messages(messages_json: bytes, turns: Turns) -> None:
    if not messages_json:
        raise _invalid("messages is missing.", "messages")
    raw_messages: list[Raw] = _decode(_list_decoder, messages_json, "messages")
    if not raw_messages:
        raise _invalid("messages must not be empty.", "messages")
    if turns.are_due(len(messages_json)):
        await turns.rest()
    for index, raw_message in enumerate(raw_messages):
        name = f"messages[{index}]"
        message: Message = _decode(_message_decoder, raw_message, name)
        if turns.are_due(len(memoryview(raw_message)) + BYTES_PER_ELEMENT):
            await turns.rest()
        if isinstance(message, AssistantMessage):
            await _check_calls(message, name, turns)
            if message.content == _NULL:
                continue
        # A string was found to be one when the body was read, and may be long.
        if memoryview(message.content)[0] != _QUOTE:
            await _check_parts(message.content, f"{name}.content", turns)


async def _check_calls(message: AssistantMessage, name: str, turns: Turns) -> None:
    if message.content == _NULL and not message.tool_calls:
        raise _invalid("An assistant message needs content or tool_calls.", f"{name}.content")
    for index, raw_call in enumerate(message.tool_calls or ()):
        _decode(_tool_call_decoder, raw_call, f"{name}.tool_calls[{index}]")
        if turns.are_due(len(memoryview(raw_call)) + BYTES_PER_ELEMENT):
            await turns.rest()


async def _check_parts(content: Raw, name: str, turns: Turns) -> None:
    for index, raw_part in enumerate(_decode(_content_decoder, content, name)):
        part: TextPart = _decode(_part_decoder, raw_part, f"{name}[{index}]")
        if part.type != "text" or part.text is None:
            raise _invalid("Content parts must be of the form {type: 'text', text: string}.", name)
        if turns.are_due(len(memoryview(raw_part)) + BYTES_PER_ELEMENT):
            await turns.rest()


async def _check_tools(tools_json: bytes, turns: Turns) -> frozenset[str]:
    if not tools_json:
        return frozenset()
    raw_tools: list[Raw] = _decode(_list_decoder, tools_json, "tools")
    if turns.are_due(len(tools_json)):
        await turns.rest()
    names = set()
    for index, raw_tool in enumerate(raw_tools):
        tool: ToolDefinition = _decode(_tool_decoder, raw_tool, f"tools[{index}]")
        if not _TOOL_NAME.fullmatch(tool.function.name):
            raise _invalid(
                "A function's name has 1 to 64 of the characters a-z, A-Z, 0-9, _ and -.",
                f"tools[{index}].function.name",
            )
        names.add(tool.function.name)
        if turns.are_due(len(memoryview(raw_tool)) + BYTES_PER_ELEMENT):
            await turns.rest()
    return frozenset(names)


def _check_tool_choice(tool_choice_json: bytes, tool_names: frozenset[str]) -> None:
    if not tool_choice_json:
        return
    choice = _decode(_tool_choice_decoder, tool_choice_json, "tool_choice")
    if isinstance(choice, _ForcedTool) and choice.function.name not in tool_names:
        raise _invalid("tool_choice names a function that is not among the tools.", "tool_choice")
    if choice == "required" and not tool_names:
        raise _invalid("tool_choice asks for a tool, and there are none.", "tool_choice")


def _max_tokens(body: _Body) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        asked: float | None = getattr(body, name)
        if asked is not None:
            if asked != int(asked) or asked < 1:
                raise _invalid(f"{name} must be a whole number, at least 1.", name)
            return min(int(asked), 2**31)
    return None


def _parameters(body: _Body, *, with_tools: bool) -> bytes:
    parameters = {name: value for name in _FORWARDED if (value := getattr(body, name)) is not None}
    response_format = _present(body.response_format)
    if response_format:
        _decode(_response_format_decoder, response_format, "response_format")
        parameters["response_format"] = Raw(response_format)
    if with_tools and body.parallel_tool_calls is not None:
        parameters["parallel_tool_calls"] = body.parallel_tool_calls
    return msgspec.json.encode(parameters) if parameters else b""


def _present(value: Raw | UnsetType) -> bytes:
    """The bytes of a field; none if it is absent or null."""
    if isinstance(value, UnsetType):
        return b""
    given = bytes(value)
    return b"" if given == b"null" else given


def _decode(decoder: msgspec.json.Decoder[Any], given: bytes | Raw, name: str) -> Any:
    try:
        return decoder.decode(given)
    except msgspec.ValidationError as error:
        raise _mistake(str(error), name) from None
    except msgspec.DecodeError:
        raise _invalid("The body is not valid JSON.", name or None) from None
    except RecursionError:
        raise _invalid("The body is nested too deeply.", name or None) from None


_PLACE = re.compile(r" - at `(?P<path>\$.*)`$")
# Of msgspec's sentences, those that speak of types and names of ours alone.
_SAFE = re.compile(r"(Expected `[^`]+`(, got `[^`]+`)?|Object missing required field `[a-z_]+`)$")


def _mistake(sentence: str, name: str) -> LegatoError:
    place = _PLACE.search(sentence)
    path = (name + place["path"][1:] if place else name).lstrip(".")
    said = _PLACE.sub("", sentence)
    if not _SAFE.match(said):
        said = "This value is not one of those accepted here"
    return _invalid(f"{path or 'body'}: {said}.".replace("`", "'"), path or None)


def _invalid(message: str, param: str | None = None) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)
