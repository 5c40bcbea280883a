"""Validates the tools of a chat in place: they are passed on as the bytes that arrived."""

import re
from typing import Final, Literal

from msgspec import Raw, Struct

from edge.wire.messages import BYTES_PER_ELEMENT
from edge.wire.validation import FieldDecoder, UnreadObject, invalid
from services.chassis.timing.deadlines import Yielder

MOST_TOOLS: Final = 10_000
_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


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


_list_decoder = FieldDecoder[list[Raw]](list[Raw])
_tool_decoder = FieldDecoder[ToolDefinition](ToolDefinition)
_tool_choice_decoder = FieldDecoder[str | _ForcedTool](Literal["auto", "none", "required"] | _ForcedTool)


async def check_tools(tools_json: bytes, yielder: Yielder) -> frozenset[str]:
    raw_tools = _list_decoder.decode(tools_json, "tools")
    if len(raw_tools) > MOST_TOOLS:
        raise invalid(f"A request may have at most {MOST_TOOLS:,} tools.", "tools")
    if yielder.is_due(len(tools_json)):
        await yielder.pause()
    names = set()
    for index, raw_tool in enumerate(raw_tools):
        tool = _tool_decoder.decode(raw_tool, f"tools[{index}]")
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
    choice = _tool_choice_decoder.decode(tool_choice_json, "tool_choice")
    if isinstance(choice, _ForcedTool) and choice.function.name not in tool_names:
        raise invalid("tool_choice names a function that is not in tools.", "tool_choice")
    if choice == "required" and not tool_names:
        raise invalid("tool_choice requires a tool, but there are no tools.", "tool_choice")
