"""The body of `POST /v1/responses` as the body of a chat, which the rest of the edge validates.

Nothing is stored, so whatever refers to something stored is refused with a sentence.
"""

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from edge.responses.fields import ReasoningOptions, ResponseBody, ResponseBodyOfKnownFields, TextOptions
from edge.responses.items import InputReader
from edge.responses.response_items import ReasoningForm
from edge.responses.response_json import settings_of
from edge.responses.tools import OfferedTools, choose_tools, read_tools
from edge.wire.checked_json import SLICE_BYTES, check_field, checked_text, decode_part, invalid, present, read_fields
from edge.wire.request_fields import ABSENT
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder

# What needs something stored, and what to do instead.
_STORED: Final = ("background", "context_management", "conversation", "previous_response_id", "prompt")
# Names of a chat's fields, where errors of its validation and of models have another name here.
_PARAMS: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "verbosity": "text.verbosity",
}
_SCHEMA_FIELDS: Final = ("name", "description", "schema", "strict")

_encode = msgspec.json.encode


class _Format(Struct):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: Raw = ABSENT
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class ConvertedRequest:
    """A request for a response."""

    # The body of the chat.
    chat_json: bytes
    tools: OfferedTools
    reasoning: ReasoningForm
    # What is left out although it may change the answer.
    ignored: tuple[str, ...]
    # The settings that the answer tells.
    settings: dict[str, object]


_lenient_decoder = msgspec.json.Decoder(ResponseBody)
_strict_decoder: msgspec.json.Decoder[ResponseBody] = msgspec.json.Decoder(ResponseBodyOfKnownFields)
_metadata_decoder = msgspec.json.Decoder(dict[str, str | None])
_format_decoder = msgspec.json.Decoder(_Format)
_input_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(str | list[Raw])


async def convert_request(body_json: bytes, *, may_search: bool) -> ConvertedRequest:
    """`may_search`: the account lets its chats without tools search the web."""
    yielder = Yielder(SLICE_BYTES)
    body, ignored = await read_fields(body_json, yielder, _strict_decoder, _lenient_decoder)
    _refuse_what_is_not_offered(body)
    tools = await read_tools(body.tools, yielder)
    choice_json, is_choice_ignored = choose_tools(body.tool_choice, tools)
    reasoning = body.reasoning or ReasoningOptions()
    # Options that may change an answer, and that no model is told.
    options = {
        "truncation": body.truncation == "auto",
        "reasoning.context": reasoning.context not in (None, "auto"),
        "reasoning.mode": reasoning.mode not in (None, "standard"),
        "tool_choice": is_choice_ignored,
    }
    ignored += [name for name, is_ignored in options.items() if is_ignored]
    if tools.has_search and (tools.functions or not may_search):
        ignored.append("web_search")
    messages_json = b",".join(await _read_messages(body, tools, yielder))
    told = ReasoningForm(reasoning.summary not in (None, "none"), "reasoning.encrypted_content" in (body.include or ()))
    parts = [b'"messages":[%b]' % messages_json, _encode(_parameters(body, has_reasoning=any(told)))[1:-1]]
    if tools.functions:
        parts.append(b'"tools":[%b]' % b",".join(tools.functions.values()))
    if choice_json:
        parts.append(b'"tool_choice":%b' % choice_json)
    tools.functions.clear()
    return ConvertedRequest(b"{%b}" % b",".join(filter(None, parts)), tools, told, tuple(ignored), settings_of(body))


def rename_param(param: str | None) -> str | None:
    """Returns the name that a field of the chat has here."""
    return _PARAMS.get(re.split(r"\W", param or "", maxsplit=1)[0], param)


def _refuse_what_is_not_offered(body: ResponseBody) -> None:
    if body.store:
        raise invalid(Sentence("store_not_false"), "store")
    for name in _STORED:
        if present(getattr(body, name)) not in (b"", b"false", b"[]"):
            raise invalid(Sentence("field_needs_store", name=name), name)
    if body.top_logprobs or "message.output_text.logprobs" in (body.include or ()):
        raise invalid(Sentence("logprobs_not_supported"), "top_logprobs" if body.top_logprobs else "include")
    check_field("metadata", present(body.metadata), _metadata_decoder)


def _parameters(body: ResponseBody, *, has_reasoning: bool) -> dict[str, object]:
    text, reasoning = body.text or TextOptions(), body.reasoning or ReasoningOptions()
    fields: dict[str, object] = {
        "model": body.model,
        "stream": body.stream,
        "max_tokens": body.max_output_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "parallel_tool_calls": body.parallel_tool_calls,
        "reasoning_effort": reasoning.effort,
        "include_reasoning": has_reasoning or None,
        "stream_options": body.stream_options if present(body.stream_options) else None,
        "verbosity": text.verbosity,
        "response_format": _response_format(text.format),
        "prompt_cache_key": body.prompt_cache_key if present(body.prompt_cache_key) else None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _response_format(format_json: Raw) -> dict[str, object] | None:
    given = present(format_json)
    if not given:
        return None
    wanted = decode_part(_format_decoder, given, "text.format")
    if wanted.type != "json_schema":
        return {"type": wanted.type}
    if not present(wanted.schema):
        raise invalid(Sentence("field_missing", name="text.format.schema"), "text.format.schema")
    fields = {name: value for name in _SCHEMA_FIELDS if (value := getattr(wanted, name)) is not None}
    return {"type": wanted.type, wanted.type: fields}


async def _read_messages(body: ResponseBody, tools: OfferedTools, yielder: Yielder) -> list[bytes]:
    given = present(body.input)
    if not given:
        raise invalid(Sentence("field_missing", name="input"), "input")
    messages = []
    if instructions := present(body.instructions):
        said_first = checked_text(Raw(instructions), "instructions")
        messages.append(_encode({"role": "system", "content": said_first}))
    if given.startswith(b'"'):
        return [*messages, _encode({"role": "user", "content": Raw(given)})]
    said = await InputReader(tools, yielder).read(decode_part(_input_decoder, given, "input"))
    if not said:
        raise invalid(Sentence("content_empty", name="input"), "input")
    return messages + said
