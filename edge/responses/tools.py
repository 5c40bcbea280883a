"""The tools of a request as functions, which chats have alone, and the way back from a called function to its tool.

A function of a `namespace` gets the name of both. Hosted tools run at OpenAI, so they are refused, but for web
searches: a chat without functions searches by itself where its account has that.
"""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from edge.wire.chat_request import BYTES_PER_ELEMENT, check_tool_count
from edge.wire.checked_json import check_field, check_object, decode_part, invalid, present
from edge.wire.custom_tools import define_function
from edge.wire.element_reader import split_list
from edge.wire.request_fields import ABSENT
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder

_FUNCTION_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNUSUAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
_SEARCHES: Final = "web_search"
_FUNCTIONS: Final = ("function", "custom")

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool as the client names it."""

    name: str
    # Empty if it is in none.
    namespace: str = ""
    is_custom: bool = False


@dataclass(slots=True)
class OfferedTools:
    """The tools of a request."""

    # The JSON of each function, by its name.
    functions: dict[str, bytes] = field(default_factory=dict)
    by_function: dict[str, NamedTool] = field(default_factory=dict)
    # The client also wants searches of the web.
    has_search: bool = False

    def function_name(self, namespace: str | None, name: str) -> str:
        """Returns the name of the function that stands for a tool, whether it is offered or not; with a hash if the
        plain name is that of another, or none that models take."""
        joined = f"{namespace}__{name}" if namespace else name
        taken = self.by_function.get(joined)
        is_free = taken is None or (taken.namespace, taken.name) == (namespace or "", name)
        if is_free and _FUNCTION_NAME.fullmatch(joined):
            return joined
        digest = hashlib.sha256(f"{namespace or ''}\0{name}".encode()).hexdigest()[:8]
        return f"{_UNUSUAL.sub('_', joined)[:55]}_{digest}"

    def add(self, tool: NamedTool, definition: dict[str, object]) -> None:
        name = self.function_name(tool.namespace, tool.name)
        self.by_function[name] = tool
        self.functions[name] = _encode({"type": "function", "function": {"name": name, **definition}})

    def tool_of(self, function_name: str) -> NamedTool:
        """Returns the tool that a model has called."""
        return self.by_function.get(function_name) or NamedTool(function_name)


class _InputFormat(Struct):
    type: Literal["text", "grammar"]
    syntax: str | None = None
    definition: str | None = None


class _GivenTool(Struct):
    """A tool of any type, with the fields that those have which are taken."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: Raw = ABSENT
    strict: bool | None = None
    format: _InputFormat | None = None
    tools: list[Raw] | None = None


class _ChosenTool(Struct):
    type: str
    name: str | None = None
    namespace: str | None = None


class _ToolChoice(_ChosenTool):
    mode: Literal["auto", "required"] = "auto"
    tools: list[_ChosenTool] = []


_tool_decoder = msgspec.json.Decoder(_GivenTool)
_choice_decoder: msgspec.json.Decoder[str | _ToolChoice] = msgspec.json.Decoder(
    Literal["auto", "none", "required"] | _ToolChoice
)


async def read_tools(tools_json: Raw, yielder: Yielder) -> OfferedTools:
    tools = OfferedTools()
    if given := present(tools_json):
        await _add_tools(tools, split_list(given, "tools"), "tools", yielder)
    return tools


async def _add_tools(
    tools: OfferedTools, raw_tools: list[Raw], place: str, yielder: Yielder, group: _GivenTool | None = None
) -> None:
    about_group = f"{group.name}: {group.description}\n\n" if group is not None and group.description else ""
    for index, raw_tool in enumerate(raw_tools):
        name = f"{place}[{index}]"
        check_tool_count(len(tools.functions) + 1)
        tool = decode_part(_tool_decoder, raw_tool, name)
        if tool.type in _FUNCTIONS or (tool.type == "namespace" and group is None):
            if not tool.name:
                raise invalid(Sentence("field_missing", name=f"{name}.name"), f"{name}.name")
            if tool.type == "namespace":
                await _add_tools(tools, tool.tools or [], f"{name}.tools", yielder, tool)
                continue
            # What is said of a group is told once.
            tool.description, about_group = (about_group + (tool.description or "")).rstrip(), ""
            namespace = group.name if group is not None else None
            named = NamedTool(tool.name, namespace or "", is_custom=tool.type == "custom")
            tools.add(named, _definition(tool, name))
        elif tool.type.startswith(_SEARCHES) and group is None:
            tools.has_search = True
        else:
            raise invalid(Sentence("tool_kinds"), f"{name}.type")
        await yielder.spend(len(memoryview(raw_tool)) + BYTES_PER_ELEMENT)


def _definition(tool: _GivenTool, place: str) -> dict[str, object]:
    if tool.type == "custom":
        form = tool.format or _InputFormat("text")
        return define_function(tool.description or "", form.syntax, form.definition)
    check_object(tool.parameters, f"{place}.parameters")
    fields = {"description": tool.description, "parameters": Raw(present(tool.parameters)), "strict": tool.strict}
    return {name: value for name, value in fields.items() if value not in (None, "", ABSENT)}


def choose_tools(choice_json: Raw, tools: OfferedTools) -> tuple[bytes, bool]:
    """Returns the `tool_choice` of the chat, empty for none, and whether the client's was left out. Leaves only the
    tools that it allows."""
    choice = check_field("tool_choice", present(choice_json), _choice_decoder)
    if choice is None:
        return b"", False
    if tools.has_search and not tools.functions and choice != "none":
        # With a choice, the chat would not search. It does not have to.
        return b"", choice != "auto"
    if isinstance(choice, str):
        return _encode(choice), False
    if choice.type.startswith(_SEARCHES):
        return b"", True
    if choice.type == "allowed_tools":
        allowed = {_chosen(each, tools) for each in choice.tools if not each.type.startswith(_SEARCHES)}
        tools.functions = {name: function for name, function in tools.functions.items() if name in allowed}
        if not tools.functions:
            raise invalid(Sentence("tool_choice_allows_none"), "tool_choice")
        return _encode(choice.mode), False
    name = _chosen(choice, tools)
    if name not in tools.functions:
        raise invalid(Sentence("tool_choice_tool_unknown"), "tool_choice")
    return _encode({"type": "function", "function": {"name": name}}), False


def _chosen(chosen: _ChosenTool, tools: OfferedTools) -> str:
    if chosen.type not in _FUNCTIONS:
        raise invalid(Sentence("tool_choice_kinds"), "tool_choice")
    return tools.function_name(chosen.namespace, chosen.name or "")
