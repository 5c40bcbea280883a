"""Decodes and validates the body of `/v1/chat/completions`.

Messages, tools and tool_choice are checked in full and then passed on as the bytes they came in.
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from edge.wire.checked_json import (
    SLICE_BYTES,
    DecodedT,
    check_field,
    check_utf8,
    decode_known,
    decode_part,
    invalid,
    present,
)
from edge.wire.custom_tools import to_function_calls, to_function_choice, to_functions
from edge.wire.request_fields import (
    ABSENT,
    NULL,
    AllowedToolsChoice,
    AssistantMessage,
    Body,
    BodyOfKnownFields,
    Content,
    CustomToolDefinition,
    ForcedCustomTool,
    ForcedTool,
    ForwardedFields,
    FunctionDefinition,
    Message,
    Moderation,
    ModerationPolicy,
    PlainMessage,
    Reasoning,
    ResponseFormatField,
    TextPart,
    ToolCall,
    ToolDefinition,
    UnreadObject,
)
from edge.wire.value_limit import check_values
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder

# The cost of checking one list element, however short, in bytes to read.
BYTES_PER_ELEMENT = 64
# Limits messages, content parts and tool calls together.
MOST_ELEMENTS: Final = 100_000
MOST_TOOLS: Final = 10_000

_EMPTY = Raw(b'""')
_NO_NAMES: Final[frozenset[str]] = frozenset()
_QUOTE = ord('"')
TOOL_NAME = re.compile(r"[a-zA-Z0-9_.:/-]{1,128}")
# All vendors take such names; others are replaced where a vendor does not.
_USUAL_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


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
    # Whether a function has a name that not all vendors take.
    has_unusual_names: bool = False
    # A client that sends tool_choice, with or without tools of its own, wants no others.
    names_tool_choice: bool = False
    # The names of tools whose input is any text, and which models are told as functions.
    custom_tools: frozenset[str] = frozenset()
    # Fields that may change an answer, and are not passed on.
    ignored: tuple[str, ...] = ()
    # SHA-256 of the client's `prompt_cache_key`, whatever that is; empty if it sent none.
    prompt_cache_key_digest: bytes = b""
    # Whether the client asked to be told what the model thinks; None: it said nothing.
    shows_reasoning: bool | None = None
    # Whether a stream is padded; None: the client said nothing.
    pads_stream: bool | None = None
    # Of so many of the last turns models get back what they thought; None: of all.
    kept_thinking_turns: int | None = None


_body_decoder = msgspec.json.Decoder(Body)
_strict_decoder: msgspec.json.Decoder[Body] = msgspec.json.Decoder(BodyOfKnownFields)
_modalities_decoder = msgspec.json.Decoder(list[Literal["text"]])
_logit_bias_decoder = msgspec.json.Decoder(dict[str, Annotated[float, Meta(ge=-100, le=100)]])
_object_decoder = msgspec.json.Decoder(UnreadObject)
_metadata_decoder = msgspec.json.Decoder(dict[str, str | None])
_response_format_decoder = msgspec.json.Decoder(ResponseFormatField)
_list_decoder = msgspec.json.Decoder(list[Raw])
_content_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Content)
_part_decoder = msgspec.json.Decoder(TextPart)
_tool_call_decoder = msgspec.json.Decoder(ToolCall)
_plain_decoder = msgspec.json.Decoder(Annotated[list[PlainMessage], Meta(min_length=1, max_length=MOST_ELEMENTS)])
_message_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)
_tool_decoder = msgspec.json.Decoder(ToolDefinition)
_tool_choice_decoder: msgspec.json.Decoder[str | ForcedTool | ForcedCustomTool | AllowedToolsChoice] = (
    msgspec.json.Decoder(Literal["auto", "none", "required"] | ForcedTool | ForcedCustomTool | AllowedToolsChoice)
)
_moderation_decoder = msgspec.json.Decoder(Moderation)
_usual_tiers = (Raw(b'"auto"'), Raw(b'"default"'))

# Known, and not passed on to any provider.
_IGNORED = ("prediction", "web_search_options", "service_tier", "moderation")


async def decode_chat(body: bytes) -> ChatBody:
    yielder = Yielder(SLICE_BYTES)
    if len(body) > SLICE_BYTES or not body.isascii():
        await check_utf8(body, yielder)
    await check_values(body, yielder)
    decoded, ignored = _decode_fields(body)
    await yielder.spend(len(body))
    if decoded.metadata:
        check_field("metadata", present(decoded.metadata), _metadata_decoder)
    _refuse_what_is_not_offered(decoded)
    marks = await _check_messages(decoded.messages, yielder)
    if marks.has_breakpoint:
        ignored += ("prompt_cache_breakpoint",)
    tools_json = present(decoded.tools) if decoded.tools else b""
    tool_choice_json = present(decoded.tool_choice) if decoded.tool_choice else b""
    tool_names, custom_tools = await _check_tools(tools_json, yielder) if tools_json else (_NO_NAMES, _NO_NAMES)
    if tool_choice_json:
        _check_tool_choice(tool_choice_json, tool_names)
    if decoded.reasoning is not None and decoded.reasoning.summary is not None:
        ignored += ("reasoning.summary",)
    if decoded.parallel_tool_calls is not None and not tool_names:
        # Servers refuse it without tools.
        ignored += ("parallel_tool_calls",)
    if custom_tools or marks.has_custom_calls:
        tools_json, tool_choice_json = to_functions(tools_json), to_function_choice(tool_choice_json)
        decoded.messages = await to_function_calls(decoded.messages, yielder)
    return ChatBody(
        model="auto" if decoded.model is None else decoded.model,
        stream=bool(decoded.stream),
        max_tokens=_max_tokens(decoded),
        # Copied last, so that there is one copy of a large prompt while others have their turn.
        messages_json=present(decoded.messages),
        tools_json=tools_json if tool_names else b"",
        tool_choice_json=tool_choice_json if tool_names else b"",
        parameters_json=_parameters(decoded, with_tools=bool(tool_names)),
        has_tools=bool(tool_names),
        has_unusual_names=not all(map(_USUAL_NAME.fullmatch, tool_names)),
        names_tool_choice=bool(tool_choice_json),
        custom_tools=custom_tools,
        ignored=ignored,
        prompt_cache_key_digest=_digest(decoded.prompt_cache_key),
        shows_reasoning=decoded.include_reasoning if decoded.reasoning is None else not decoded.reasoning.exclude,
        pads_stream=None if decoded.stream_options is None else decoded.stream_options.include_obfuscation,
    )


def _digest(value: Raw) -> bytes:
    given = present(value) if value else b""
    return hashlib.sha256(given).digest() if given else b""


def _decode_fields(body: bytes) -> tuple[Body, tuple[str, ...]]:
    """Returns the fields that we know, and the names of those that are ignored although they may change an answer."""
    decoded, others = decode_known(body, _strict_decoder, _body_decoder)
    if decoded.service_tier in _usual_tiers:
        decoded.service_tier = ABSENT
    for name in _IGNORED:
        if (given := getattr(decoded, name)) and present(given):
            others.append(name)
    return decoded, tuple(others)


def _refuse_what_is_not_offered(body: Body) -> None:
    if body.n is not None and body.n != 1:
        raise invalid(Sentence("n_not_one"), "n")
    if body.logprobs:
        raise invalid(Sentence("logprobs_not_supported"), "logprobs")
    if body.top_logprobs:
        raise invalid(Sentence("logprobs_not_supported"), "top_logprobs")
    if body.functions or body.function_call:
        for name, instead in (("functions", "tools"), ("function_call", "tools and tool_choice")):
            if present(getattr(body, name)):
                raise invalid(Sentence("field_not_supported", name=name, instead=instead), name)
    if body.modalities:
        check_field("modalities", present(body.modalities), _modalities_decoder)
    if body.moderation and present(body.moderation):
        _refuse_blocking(decode_part(_moderation_decoder, body.moderation, "moderation"))
    if body.audio and present(body.audio):
        raise invalid(Sentence("audio_not_supported"), "audio")


def _refuse_blocking(wanted: Moderation) -> None:
    """Raises if an answer is to be held back: to answer without would be what the client wants to exclude."""
    policy = wanted.policy or ModerationPolicy()
    for place in ("input", "output"):
        rule = getattr(policy, place)
        if rule is not None and rule.mode == "block":
            raise invalid(Sentence("moderation_cannot_block"), f"moderation.policy.{place}.mode")


def _max_tokens(body: Body) -> int | None:
    newer = _checked_limit("max_completion_tokens", body.max_completion_tokens)
    older = _checked_limit("max_tokens", body.max_tokens)
    return older if newer is None else newer


def _checked_limit(name: str, asked: float | None) -> int | None:
    if asked is None:
        return None
    if asked != int(asked) or asked < 1:
        raise invalid(Sentence("whole_number_least", name=name), name)
    return min(int(asked), 2**31)


def _parameters(body: Body, *, with_tools: bool) -> bytes:
    # Some models refuse an empty list of stops, which is the same as none.
    parameters = {
        name: value
        for name in ForwardedFields.__struct_fields__
        if (value := getattr(body, name)) is not None and value != []
    }
    if body.reasoning is not None:
        parameters |= _reasoning(body.reasoning, has_effort="reasoning_effort" in parameters)
    if body.response_format and (response_format := present(body.response_format)):
        wanted = decode_part(_response_format_decoder, response_format, "response_format")
        if wanted.type == "json_schema" and wanted.json_schema is None:
            raise invalid(Sentence("json_schema_missing"), "response_format.json_schema")
        parameters["response_format"] = Raw(response_format)
    if body.logit_bias and (logit_bias := present(body.logit_bias)):
        check_field("logit_bias", logit_bias, _logit_bias_decoder)
        parameters["logit_bias"] = Raw(logit_bias)
    if body.chat_template_kwargs and (template_kwargs := present(body.chat_template_kwargs)):
        check_field("chat_template_kwargs", template_kwargs, _object_decoder)
        parameters["chat_template_kwargs"] = Raw(template_kwargs)
    if with_tools and body.parallel_tool_calls is not None:
        parameters["parallel_tool_calls"] = body.parallel_tool_calls
    return msgspec.json.encode(parameters) if parameters else b""


def _reasoning(wanted: Reasoning, *, has_effort: bool) -> dict[str, object]:
    """Returns what the object says as parameters; a `reasoning_effort` beside it counts."""
    effort = wanted.effort
    if effort is None and wanted.enabled is not None and wanted.max_tokens is None:
        effort = "medium" if wanted.enabled else "none"
    parameters: dict[str, object] = {} if effort is None or has_effort else {"reasoning_effort": effort}
    if wanted.max_tokens is not None and wanted.enabled is not False:
        parameters["reasoning"] = {"max_tokens": wanted.max_tokens}
    return parameters


@dataclass(slots=True)
class _Marks:
    """The unusual parts and calls that were seen in the messages."""

    # A part has a mark that is not passed on.
    has_breakpoint: bool = False
    has_custom_calls: bool = False

    def check_part(self, part: TextPart, name: str) -> None:
        _check_part(part, name)
        self.has_breakpoint = self.has_breakpoint or part.prompt_cache_breakpoint is not None

    def check_call(self, call: ToolCall, name: str) -> None:
        _check_kind(call, name)
        self.has_custom_calls = self.has_custom_calls or call.custom is not None


def _check_kind(tool: ToolCall | ToolDefinition, name: str) -> None:
    """Raises if a tool or a call has not what its type says."""
    if getattr(tool, tool.type) is None:
        raise invalid(Sentence("field_missing", name=f"{name}.{tool.type}"), name)


async def _check_messages(messages: Raw, yielder: Yielder) -> _Marks:
    if not messages or messages == NULL:
        raise invalid(Sentence("messages_missing"), "messages")
    if _are_plain(messages):
        await yielder.spend(len(memoryview(messages)))
        return _Marks()
    raw_messages = decode_part(_list_decoder, messages, "messages")
    if not raw_messages:
        raise invalid(Sentence("messages_empty"), "messages")
    elements = len(raw_messages)
    check_count(elements, "messages")
    marks = _Marks()
    await yielder.spend(len(memoryview(messages)))
    for index, raw_message in enumerate(raw_messages):
        name = f"messages[{index}]"
        message = decode_part(_message_decoder, raw_message, name)
        content, raw_calls = message.content, message.tool_calls
        if isinstance(message, AssistantMessage) and content == NULL:
            if not raw_calls and not message.refusal:
                raise invalid(Sentence("assistant_message_empty"), f"{name}.content")
            content = _EMPTY
        # Its texts may be long, and were only decoded to be checked: they do not stay while others have their turn.
        del message
        await yielder.spend(len(memoryview(raw_message)) + BYTES_PER_ELEMENT)
        if raw_calls:
            elements += len(raw_calls)
            check_count(elements, f"{name}.tool_calls")
            await _check_each(_tool_call_decoder, raw_calls, f"{name}.tool_calls", yielder, marks.check_call)
        # A string was validated when the body was decoded, and may be long.
        if memoryview(content)[0] != _QUOTE:
            raw_parts = decode_part(_content_decoder, content, f"{name}.content")
            elements += len(raw_parts)
            check_count(elements, f"{name}.content")
            await _check_each(_part_decoder, raw_parts, f"{name}.content", yielder, marks.check_part)
    return marks


def _are_plain(messages: Raw) -> bool:
    """Returns whether the messages are nothing but valid roles and texts, as in most chats: one pass says so. What is
    otherwise wrong or right with them takes two more."""
    try:
        plain = _plain_decoder.decode(messages)
    except (msgspec.DecodeError, RecursionError):
        return False
    return all(memoryview(message.content)[0] == _QUOTE for message in plain)


def check_count(elements: int, name: str) -> None:
    """Raises if a request has more messages, parts and tool calls than any needs."""
    if elements > MOST_ELEMENTS:
        raise invalid(Sentence("elements_most", most=MOST_ELEMENTS), name)


def check_tool_count(tools: int) -> None:
    if tools > MOST_TOOLS:
        raise invalid(Sentence("tools_most", most=MOST_TOOLS), "tools")


async def _check_each(
    decoder: msgspec.json.Decoder[DecodedT],
    raw_elements: list[Raw],
    name: str,
    yielder: Yielder,
    check: Callable[[DecodedT, str], None] = lambda element, name: None,
) -> None:
    """Checks the elements of a list. Each is decoded only for that: it does not stay while others have their turn."""
    for index, raw_element in enumerate(raw_elements):
        place = f"{name}[{index}]"
        check(decode_part(decoder, raw_element, place), place)
        await yielder.spend(len(memoryview(raw_element)) + BYTES_PER_ELEMENT)


def _check_part(part: TextPart, name: str) -> None:
    if part.type == "refusal" and part.refusal is not None:
        return
    if part.type != "text" or part.text is None:
        raise invalid(Sentence("content_part_form"), name.rpartition("[")[0])


async def _check_tools(tools_json: bytes, yielder: Yielder) -> tuple[frozenset[str], frozenset[str]]:
    """Returns the names of all tools, and those of custom ones."""
    raw_tools = decode_part(_list_decoder, tools_json, "tools")
    check_tool_count(len(raw_tools))
    await yielder.spend(len(tools_json))
    names: dict[str, set[str]] = {"function": set(), "custom": set()}

    def check(tool: ToolDefinition, name: str) -> None:
        _check_kind(tool, name)
        described: FunctionDefinition | CustomToolDefinition = getattr(tool, tool.type)
        if not TOOL_NAME.fullmatch(described.name):
            raise invalid(Sentence("function_name_invalid"), f"{name}.{tool.type}.name")
        names[tool.type].add(described.name)

    await _check_each(_tool_decoder, raw_tools, "tools", yielder, check)
    custom = frozenset(names["custom"])
    return custom.union(names["function"]), custom


def _name_of(tool: ForcedTool | ForcedCustomTool) -> str:
    return tool.custom.name if isinstance(tool, ForcedCustomTool) else tool.function.name


def _check_tool_choice(tool_choice_json: bytes, tool_names: frozenset[str]) -> None:
    choice = decode_part(_tool_choice_decoder, tool_choice_json, "tool_choice")
    named: Sequence[ForcedTool | ForcedCustomTool] = ()
    if isinstance(choice, AllowedToolsChoice):
        named = choice.allowed_tools.tools
    elif not isinstance(choice, str):
        named = [choice]
    if not tool_names.issuperset(map(_name_of, named)):
        raise invalid(Sentence("tool_choice_unknown"), "tool_choice")
    if choice == "required" and not tool_names:
        raise invalid(Sentence("tool_choice_without_tools"), "tool_choice")
