"""Decodes and validates the body of `/v1/chat/completions`.

Messages, tools and tool_choice are checked in full and then passed on as the bytes they came in. Error messages name
the place and the types, and never quote what was sent.
"""

import codecs
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from edge.wire.messages import (
    MOST_VALUES,
    UnreadObject,
    check_messages,
    check_tool_choice,
    check_tools,
    check_values,
    decode,
    invalid,
)
from services.chassis.timing.deadlines import Yielder

# A larger body is read in steps, between which it yields to other chats. Reading this much takes less than a
# millisecond.
SLICE_BYTES = 64 * 1024
# OpenAI takes 16 pairs of at most 576 characters.
LARGEST_METADATA_BYTES = 64 * 1024


class _JsonSchema(Struct):
    name: str | None = None
    description: str | None = None
    schema: UnreadObject | None = None
    strict: bool | None = None


class _ResponseFormat(Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _JsonSchema | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class _Body(Struct):
    """The fields we know; all others are ignored and not passed on. Null is the same as absent."""

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
    stream_options: _StreamOptions | None = None
    user: str | None = None
    metadata: Raw | UnsetType = UNSET


class ChatBody(Struct, frozen=True):
    model: str
    stream: bool
    max_tokens: int | None
    messages_json: bytes
    # Empty if there are no tools.
    tools_json: bytes
    tool_choice_json: bytes
    parameters_json: bytes
    # A client that sends tool_choice, with or without tools of its own, wants no others.
    names_tool_choice: bool = False


_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_body_decoder = msgspec.json.Decoder(_Body)
_metadata_decoder = msgspec.json.Decoder(dict[str, str | None])
_response_format_decoder = msgspec.json.Decoder(_ResponseFormat)

_FORWARDED = ("temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty")


async def decode_chat(body: bytes) -> ChatBody:
    yielder = Yielder(SLICE_BYTES)
    if len(body) > SLICE_BYTES or not body.isascii():
        await _check_utf8(body, yielder)
    if len(body) > MOST_VALUES:
        await check_values(body, yielder)
    decoded: _Body = decode(_body_decoder, body, "")
    if yielder.is_due(len(body)):
        await yielder.pause()
    if decoded.metadata is not UNSET:
        _check_metadata(_present(decoded.metadata))
    _refuse_what_is_not_offered(decoded)
    messages_json = _present(decoded.messages)
    await check_messages(messages_json, yielder)
    tools_json = b"" if decoded.tools is UNSET else _present(decoded.tools)
    tool_choice_json = b"" if decoded.tool_choice is UNSET else _present(decoded.tool_choice)
    tool_names = await check_tools(tools_json, yielder) if tools_json else frozenset()
    if tool_choice_json:
        check_tool_choice(tool_choice_json, tool_names)
    return ChatBody(
        model="auto" if decoded.model is None else decoded.model,
        stream=bool(decoded.stream),
        max_tokens=_max_tokens(decoded),
        messages_json=messages_json,
        tools_json=tools_json if tool_names else b"",
        tool_choice_json=tool_choice_json if tool_names else b"",
        parameters_json=_parameters(decoded, with_tools=bool(tool_names)),
        names_tool_choice=bool(tool_choice_json),
    )


async def _check_utf8(body: bytes, yielder: Yielder) -> None:
    """Raises for invalid UTF-8, which nothing would notice later in the parts that stay bytes."""
    try:
        if len(body) <= SLICE_BYTES:
            body.decode()
            return
        decoder, view = _Utf8Decoder(), memoryview(body)
        for begin in range(0, len(body), SLICE_BYTES):
            end = begin + SLICE_BYTES
            decoder.decode(view[begin:end], final=end >= len(body))
            if yielder.is_due((min(end, len(body)) - begin) // 4):
                await yielder.pause()
    except UnicodeDecodeError:
        raise invalid("The body is not valid UTF-8.") from None


def _refuse_what_is_not_offered(body: _Body) -> None:
    if body.n is not None and body.n != 1:
        raise invalid("n must be 1: this service returns one choice.", "n")
    if body.logprobs:
        raise invalid("logprobs are not supported.", "logprobs")
    if body.top_logprobs:
        raise invalid("logprobs are not supported.", "top_logprobs")


def _check_metadata(given: bytes) -> None:
    """Checks metadata, within a small size limit, since it is not used."""
    if len(given) > LARGEST_METADATA_BYTES:
        raise invalid(f"metadata is larger than {LARGEST_METADATA_BYTES} bytes.", "metadata")
    if given:
        decode(_metadata_decoder, given, "metadata")


def _max_tokens(body: _Body) -> int | None:
    newer = _checked_limit("max_completion_tokens", body.max_completion_tokens)
    older = _checked_limit("max_tokens", body.max_tokens)
    return older if newer is None else newer


def _checked_limit(name: str, asked: float | None) -> int | None:
    if asked is None:
        return None
    if asked != int(asked) or asked < 1:
        raise invalid(f"{name} must be a whole number, at least 1.", name)
    return min(int(asked), 2**31)


def _parameters(body: _Body, *, with_tools: bool) -> bytes:
    # Some models refuse an empty list of stops, which is the same as none.
    parameters = {name: value for name in _FORWARDED if (value := getattr(body, name)) is not None and value != []}
    response_format = b"" if body.response_format is UNSET else _present(body.response_format)
    if response_format:
        wanted: _ResponseFormat = decode(_response_format_decoder, response_format, "response_format")
        if wanted.type == "json_schema" and wanted.json_schema is None:
            raise invalid("response_format.json_schema is missing.", "response_format.json_schema")
        parameters["response_format"] = Raw(response_format)
    if with_tools and body.parallel_tool_calls is not None:
        parameters["parallel_tool_calls"] = body.parallel_tool_calls
    return msgspec.json.encode(parameters) if parameters else b""


def _present(value: Raw | UnsetType) -> bytes:
    """Returns a field's bytes; empty if it is absent or null."""
    if isinstance(value, UnsetType):
        return b""
    given = bytes(value)
    return b"" if given == b"null" else given
