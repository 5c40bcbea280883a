"""Decodes and validates the body of `/v1/chat/completions`.

Messages, tools and tool_choice are checked in full and then passed on as the bytes they came in. Error messages name
the place and the types, and never quote what was sent.
"""

import codecs
import re
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from edge.wire.messages import check_messages
from edge.wire.tools import check_tool_choice, check_tools
from edge.wire.validation import FieldDecoder, UnreadObject, invalid
from edge.wire.value_limit import MOST_VALUES, check_values
from services.chassis.timing.deadlines import Yielder

# A larger body is read in steps, between which it yields to other chats. Reading this much takes less than a
# millisecond.
SLICE_BYTES = 64 * 1024
# OpenAI takes 16 pairs of metadata of at most 576 characters.
LARGEST_FIELD_BYTES = 64 * 1024
# Names in the header of fields that were ignored.
MOST_NAMES = 32
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Stands for names that do not fit into a header.
OTHERS = "*"


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
# What models take differs, and grows.
_Word = Annotated[str, Meta(pattern="^[a-z]{1,16}$")]


class _Body(Struct):
    """The fields we know; all others are not passed on, and named to the client. Null is the same as absent."""

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
    reasoning_effort: _Word | None = None
    verbosity: _Word | None = None
    logit_bias: Raw | UnsetType = UNSET
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
    functions: Raw | UnsetType = UNSET
    function_call: Raw | UnsetType = UNSET
    modalities: Raw | UnsetType = UNSET
    audio: Raw | UnsetType = UNSET
    prediction: Raw | UnsetType = UNSET
    web_search_options: Raw | UnsetType = UNSET
    store: Raw | UnsetType = UNSET
    service_tier: Raw | UnsetType = UNSET
    prompt_cache_key: Raw | UnsetType = UNSET
    prompt_cache_retention: Raw | UnsetType = UNSET
    safety_identifier: Raw | UnsetType = UNSET


class _BodyOfKnownFields(_Body, forbid_unknown_fields=True):
    """The same, without any other field, as nearly all bodies are."""


class ChatBody(Struct):
    model: str
    stream: bool
    max_tokens: int | None
    messages_json: bytes
    # Empty if there are no tools.
    tools_json: bytes
    tool_choice_json: bytes
    parameters_json: bytes
    has_tools: bool = False
    # A client that sends tool_choice, with or without tools of its own, wants no others.
    names_tool_choice: bool = False
    # Fields that may change an answer, and are not passed on.
    ignored: tuple[str, ...] = ()


_Utf8Decoder = codecs.getincrementaldecoder("utf-8")
_body_decoder = FieldDecoder[_Body](_Body)
_strict_decoder = msgspec.json.Decoder(_BodyOfKnownFields)
_fields_decoder = msgspec.json.Decoder(dict[str, Raw])
_modalities_decoder = FieldDecoder[object](list[Literal["text"]])
_logit_bias_decoder = FieldDecoder[object](dict[str, Annotated[float, Meta(ge=-100, le=100)]])
_metadata_decoder = FieldDecoder[object](dict[str, str | None])
_response_format_decoder = FieldDecoder[_ResponseFormat](_ResponseFormat)

_FORWARDED = (
    "temperature", "top_p", "stop", "seed", "presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity",
)  # fmt: skip
# Known, and not passed on to any provider.
_IGNORED = ("prediction", "web_search_options")


async def decode_chat(body: bytes) -> ChatBody:
    yielder = Yielder(SLICE_BYTES)
    if len(body) > SLICE_BYTES or not body.isascii():
        await _check_utf8(body, yielder)
    if len(body) > MOST_VALUES:
        await check_values(body, yielder)
    decoded, ignored = _decode_fields(body)
    if yielder.is_due(len(body)):
        await yielder.pause()
    if decoded.metadata is not UNSET:
        _check_field("metadata", _present(decoded.metadata), _metadata_decoder)
    _refuse_what_is_not_offered(decoded)
    await check_messages(decoded.messages, yielder)
    tools_json = b"" if decoded.tools is UNSET else _present(decoded.tools)
    tool_choice_json = b"" if decoded.tool_choice is UNSET else _present(decoded.tool_choice)
    tool_names = await check_tools(tools_json, yielder) if tools_json else frozenset()
    if tool_choice_json:
        check_tool_choice(tool_choice_json, tool_names)
    return ChatBody(
        model="auto" if decoded.model is None else decoded.model,
        stream=bool(decoded.stream),
        max_tokens=_max_tokens(decoded),
        # Copied last, so that there is one copy of a large prompt while others have their turn.
        messages_json=_present(decoded.messages),
        tools_json=tools_json if tool_names else b"",
        tool_choice_json=tool_choice_json if tool_names else b"",
        parameters_json=_parameters(decoded, with_tools=bool(tool_names)),
        has_tools=bool(tool_names),
        names_tool_choice=bool(tool_choice_json),
        ignored=ignored,
    )


def _decode_fields(body: bytes) -> tuple[_Body, tuple[str, ...]]:
    """Returns the fields that we know, and the names of those that are ignored although they may change an answer."""
    try:
        decoded: _Body = _strict_decoder.decode(body)
        others: list[str] = []
    except (msgspec.DecodeError, RecursionError):
        decoded = _body_decoder.decode(body, "")
        others = _unknown_names(body, decoded)
    if others or decoded.prediction is not UNSET or decoded.web_search_options is not UNSET:
        others += [name for name in _IGNORED if _present(getattr(decoded, name))]
    return decoded, tuple(others)


def _unknown_names(body: bytes, decoded: _Body) -> list[str]:
    known = [field for name in _Body.__struct_fields__ if isinstance(field := getattr(decoded, name), Raw)]
    if len(body) - sum(len(memoryview(field)) for field in known) > LARGEST_FIELD_BYTES:
        return [OTHERS]
    fields = _fields_decoder.decode(body)
    unknown = [name for name in fields if name not in _Body.__struct_fields__ and _present(fields[name])]
    names = [name for name in unknown[:MOST_NAMES] if _NAME.fullmatch(name)]
    return names if len(names) == len(unknown) else [*names, OTHERS]


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
    if body.functions is not UNSET or body.function_call is not UNSET:
        for name, instead in (("functions", "tools"), ("function_call", "tools and tool_choice")):
            if _present(getattr(body, name)):
                raise invalid(f"{name} is not supported: use {instead}.", name)
    if body.modalities is not UNSET:
        _check_field("modalities", _present(body.modalities), _modalities_decoder)
    if body.audio is not UNSET and _present(body.audio):
        raise invalid("audio is not supported: answers are text.", "audio")


def _check_field(name: str, given: bytes, decoder: FieldDecoder[object]) -> None:
    """Checks a field of small size."""
    if len(given) > LARGEST_FIELD_BYTES:
        raise invalid(f"{name} is larger than {LARGEST_FIELD_BYTES} bytes.", name)
    if given:
        decoder.decode(given, name)


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
        wanted = _response_format_decoder.decode(response_format, "response_format")
        if wanted.type == "json_schema" and wanted.json_schema is None:
            raise invalid("response_format.json_schema is missing.", "response_format.json_schema")
        parameters["response_format"] = Raw(response_format)
    if body.logit_bias is not UNSET and (logit_bias := _present(body.logit_bias)):
        _check_field("logit_bias", logit_bias, _logit_bias_decoder)
        parameters["logit_bias"] = Raw(logit_bias)
    if with_tools and body.parallel_tool_calls is not None:
        parameters["parallel_tool_calls"] = body.parallel_tool_calls
    return msgspec.json.encode(parameters) if parameters else b""


def _present(value: Raw | UnsetType) -> bytes:
    """Returns a field's bytes; empty if it is absent or null."""
    if isinstance(value, UnsetType):
        return b""
    given = bytes(value)
    return b"" if given == b"null" else given
