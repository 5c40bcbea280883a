"""Renders the body of `/v1/messages` as that of `/v1/chat/completions`, so that both have one validation.

Errors name places of what the client sent, so all whose place is another in the chat is checked here. Fields of the
same name and meaning are passed on as they are.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Raw

from edge.messages.blocks import ChatMessages
from edge.messages.fields import (
    AllTurns,
    ContextManagement,
    GivenTool,
    MessagesBody,
    MessagesBodyOfKnownFields,
    OutputConfig,
    Thinking,
    ToolChoice,
)
from edge.messages.message_json import MessageForm
from edge.wire.chat_request import BYTES_PER_ELEMENT, TOOL_NAME, check_tool_count
from edge.wire.checked_json import SLICE_BYTES, check_object, decode_part, invalid, is_object, present, read_fields
from edge.wire.element_reader import split_list
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder

_SAME: Final = ("model", "max_tokens", "stream", "temperature", "top_p", "top_k")
_REFUSED: Final = ("compaction", "container", "inference_geo", "mcp_servers", "thread")
# An edit with this name keeps the thoughts of so many turns, and clears older ones.
_CLEARS_THOUGHTS: Final = "clear_thinking_"
_KEPT_TURNS: Final = 1
_BYTES_PER_TOKEN: Final = 4
_THINKS: Final = ("enabled", "adaptive")
_TOOL_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_SCHEMA_PLACE: Final = "output_config.format.schema"

_encode = msgspec.json.encode
_strict_decoder: msgspec.json.Decoder[MessagesBody] = msgspec.json.Decoder(MessagesBodyOfKnownFields)
_body_decoder = msgspec.json.Decoder(MessagesBody)
_tool_decoder = msgspec.json.Decoder(GivenTool)


@dataclass(slots=True, repr=False)
class RenderedChat:
    """A request to `/v1/messages` in the terms of chat completions."""

    body: bytes
    # What is not passed on, and not known to chat completions either.
    ignored: Collection[str]
    form: MessageForm
    # Of so many turns models get back what they thought; None: of all.
    kept_turns: int | None

    def take_body(self) -> bytes:
        """Returns the body, which is not kept."""
        body, self.body = self.body, b""
        return body


async def render_chat(body: bytes) -> RenderedChat:
    yielder = Yielder(SLICE_BYTES)
    decoded, ignored = await read_fields(body, yielder, _strict_decoder, _body_decoder)
    _refuse_what_is_not_offered(decoded)
    fields = _parameters(decoded)
    messages = ChatMessages(yielder)
    if system := present(decoded.system):
        await messages.add_system(Raw(system))
    await messages.add(decoded.messages)
    fields_json = [_encode(fields)[1:-1]] if fields else []
    fields_json.append(b'"messages":[%b]' % b",".join(messages.rendered))
    others = [*ignored, *messages.ignored]
    if tools := present(decoded.tools):
        tools_json, of_tools = await _tools(tools, yielder)
        fields_json.append(b'"tools":[%b]' % b",".join(tools_json))
        others += of_tools
    rendered = b"{%b}" % b",".join(fields_json)
    omits_thinking = decoded.thinking is not None and decoded.thinking.display == "omitted"
    edits, kept_turns = _clear_thoughts(decoded.context_management, messages.thought_bytes)
    form = MessageForm(edits, omits_thinking, tuple(decoded.stop_sequences or ()))
    return RenderedChat(rendered, others, form, kept_turns)


def _refuse_what_is_not_offered(body: MessagesBody) -> None:
    for name in _REFUSED:
        if present(getattr(body, name)) not in (b"", b"[]"):
            raise invalid(Sentence("messages_field_refused", name=name), name)
    _check_edits(body.context_management)


def _check_edits(management: ContextManagement | None) -> None:
    for index, edit in enumerate(management.edits if management is not None else ()):
        if index or not edit.type.startswith(_CLEARS_THOUGHTS):
            place = f"context_management.edits[{index}]"
            raise invalid(Sentence("context_edit_refused", name=place), place)


def _clear_thoughts(
    management: ContextManagement | None, thought_bytes: list[int]
) -> tuple[list[dict[str, object]] | None, int | None]:
    """Returns the edits that are applied to what was thought in each turn, and of how many turns it is kept."""
    if management is None or not management.edits:
        return (None if management is None else []), None
    edit = management.edits[0]
    if isinstance(edit.keep, (AllTurns, str)):
        return [], None
    kept = _KEPT_TURNS if edit.keep is None else edit.keep.value
    cleared = thought_bytes[:-kept]
    if not cleared:
        return [], kept
    counts = {"cleared_thinking_turns": len(cleared), "cleared_input_tokens": sum(cleared) // _BYTES_PER_TOKEN}
    return [{"type": edit.type, **counts}], kept


def _parameters(body: MessagesBody) -> dict[str, object]:
    given = {name: getattr(body, name) for name in _SAME}
    fields: dict[str, object] = {name: value for name, value in given.items() if present(value)}
    if body.stop_sequences:
        fields["stop"] = body.stop_sequences
    config = body.output_config or OutputConfig()
    fields |= _reasoning(body.thinking, config.effort)
    if (wanted := config.format or body.output_format) is not None:
        if not is_object(wanted.schema):
            raise invalid(Sentence("schema_expected", name=_SCHEMA_PLACE), _SCHEMA_PLACE)
        schema = {"name": "answer", "schema": wanted.schema, "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if body.tool_choice is not None:
        fields |= _tool_choice(body.tool_choice)
    return fields


def _reasoning(thinking: Thinking | None, effort: str | None) -> dict[str, object]:
    if thinking is not None and thinking.type == "disabled":
        return {"reasoning_effort": "none"}
    fields: dict[str, object] = {} if effort is None else {"reasoning_effort": effort}
    if thinking is not None and thinking.type in _THINKS:
        wanted = {"reasoning": {"max_tokens": thinking.budget_tokens}}
        fields |= wanted if thinking.budget_tokens else {"include_reasoning": True}
    return fields


def _tool_choice(choice: ToolChoice) -> dict[str, object]:
    fields: dict[str, object] = {}
    if choice.type != "tool":
        fields["tool_choice"] = _TOOL_CHOICES[choice.type]
    elif choice.name:
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    else:
        raise invalid(Sentence("field_missing", name="tool_choice.name"), "tool_choice.name")
    if choice.disable_parallel_tool_use is not None:
        fields["parallel_tool_calls"] = not choice.disable_parallel_tool_use
    return fields


async def _tools(tools: bytes, yielder: Yielder) -> tuple[list[bytes], set[str]]:
    """Returns the tools, and the names of what is not passed on."""
    rendered: list[bytes] = []
    ignored: set[str] = set()
    raw_tools = split_list(tools, "tools")
    check_tool_count(len(raw_tools))
    for index, raw_tool in enumerate(raw_tools):
        place = f"tools[{index}]"
        tool = decode_part(_tool_decoder, raw_tool, place)
        rendered.append(_encode(_function(tool, place)))
        if present(tool.input_examples):
            ignored.add("input_examples")
        await yielder.spend(len(memoryview(raw_tool)) + BYTES_PER_ELEMENT)
    return rendered, ignored


def _function(tool: GivenTool, place: str) -> dict[str, object]:
    if tool.type not in (None, "custom"):
        raise invalid(Sentence("server_tool_refused", name=f"{place}.type"), f"{place}.type")
    if tool.defer_loading:
        raise invalid(Sentence("deferred_tool_refused", name=f"{place}.defer_loading"), f"{place}.defer_loading")
    if not TOOL_NAME.fullmatch(tool.name):
        raise invalid(Sentence("function_name_invalid"), f"{place}.name")
    if not is_object(tool.input_schema):
        raise invalid(Sentence("schema_expected", name=f"{place}.input_schema"), f"{place}.input_schema")
    function: dict[str, object] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    fields: dict[str, object] = {"type": "function", "function": function}
    if present(tool.cache_control):
        check_object(tool.cache_control, f"{place}.cache_control")
        fields["cache_control"] = tool.cache_control
    return fields
