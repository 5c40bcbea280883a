"""The tools of a request, described and parsed once, and the calls that models answer with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Final, Literal

import msgspec
from msgspec import Raw, Struct

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.router.schema.custom_tools import take_marks
from services.router.schema.parameters import decoded
from services.router.schema.thoughts import Thought
from services.rules.custom_tools import CustomForm

# Values that stand for no schema.
_NO_SCHEMA: Final = (Raw(), Raw(b"null"), Raw(b"{}"))
_NO_FORMS: Final[Mapping[str, CustomForm]] = {}


class Function(Struct):
    name: str
    description: str | None = None
    # A JSON schema, or null.
    parameters: Raw = Raw()
    strict: bool | None = None
    # The client's mark that Anthropic's models may cache the prompt up to here.
    cache_control: Raw = Raw()

    @property
    def has_parameters(self) -> bool:
        return self.parameters not in _NO_SCHEMA


class Tool(Struct):
    function: Function
    cache_control: Raw = Raw()

    def read_function(self) -> Function:
        """Returns the function, with the mark of the tool if that has one."""
        function = self.function
        marks = (mark for mark in (self.cache_control, function.cache_control) if mark not in _NO_SCHEMA)
        function.cache_control = next(marks, Raw())
        return function


class _AllowedTool(Struct):
    function: Function | None = None


class _AllowedTools(Struct):
    mode: Literal["auto", "required"] = "auto"
    tools: list[_AllowedTool] = []

    @property
    def names(self) -> set[str]:
        return {tool.function.name for tool in self.tools if tool.function is not None}


class _ToolChoice(Struct):
    function: Function | None = None
    allowed_tools: _AllowedTools | None = None


class ToolCallFragment(Struct, gc=False):
    """A part of a tool call as the provider sent it; any field may be missing."""

    index: int | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    # What the model thought before the call, as far as its next turn needs it.
    thoughts: Sequence[Thought] = ()

    def __repr__(self) -> str:
        # Content is never printed.
        return "ToolCallFragment(...)"


_tools = msgspec.json.Decoder(list[Tool])
_raw_tools = msgspec.json.Decoder(list[Raw])
_tool_choice = msgspec.json.Decoder(Literal["auto", "none", "required"] | _ToolChoice)


class Mode(Enum):
    # The model decides.
    AUTO = "auto"
    # The functions only explain earlier turns; this one must be answered in text.
    NONE = "none"
    # One of the functions must be called.
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, repr=False)
class CallableFunctions:
    """The functions that may be called in this turn, and how."""

    functions: list[Function]
    mode: Mode = Mode.AUTO
    # The one function that must be called; only with Mode.REQUIRED.
    forced: str | None = None
    # Those too that may not be called now, in their order, if these are some of them.
    among: Sequence[Function] = ()


class Tools:
    """The tools of one chat as JSON, which OpenAI-compatible providers send on unchanged. Parsed when first read."""

    def __init__(
        self, json: bytes = b"", tool_choice_json: bytes = b"", custom: Mapping[str, CustomForm] = _NO_FORMS
    ) -> None:
        """`json` is empty if there are none; `tool_choice_json` if the client did not send it. `custom` are the forms
        of functions that stand for custom tools, by their names."""
        self.json = json
        self.tool_choice_json = tool_choice_json
        self.custom = custom

    @classmethod
    def read(cls, json: bytes, tool_choice_json: bytes) -> "Tools":
        """Reads the tools as an edge sent them, which marks those that stand for custom tools."""
        plain_json, custom = take_marks(json)
        return cls(plain_json, tool_choice_json, custom)

    @cached_property
    def parsed(self) -> CallableFunctions | None:
        """The parsed tools; None if there are none."""
        return _read(self.json, self.tool_choice_json) if self.json else None

    def without_others(self) -> "Tools":
        """Returns the tools that a choice among some of them allows, for servers that know no such choice; the same
        object if there is none."""
        if b'"allowed_tools"' not in self.tool_choice_json:
            return self
        choice = decoded(_tool_choice, self.tool_choice_json, "tool_choice", "tool_choice")
        if isinstance(choice, str) or choice.allowed_tools is None:
            return self
        names = choice.allowed_tools.names
        kept = [
            raw
            for raw, tool in zip(_raw_tools.decode(self.json), _tools.decode(self.json), strict=True)
            if tool.function.name in names
        ]
        return Tools(msgspec.json.encode(kept), msgspec.json.encode(choice.allowed_tools.mode), self.custom)

    def as_functions(self) -> "Tools":
        """Returns the tools for a model without custom tools; the same object if there are none of those."""
        return Tools(self.json, self.tool_choice_json) if self.custom else self

    @property
    def names(self) -> set[str] | None:
        """The names of the functions; None if they cannot be read."""
        try:
            return {tool.function.name for tool in _tools.decode(self.json)}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None


NO_TOOLS: Final = Tools()


def _read(tools_json: bytes, tool_choice_json: bytes) -> CallableFunctions:
    functions = [tool.read_function() for tool in decoded(_tools, tools_json, "tools", "tools")]
    choice = decoded(_tool_choice, tool_choice_json or b'"auto"', "tool_choice", "tool_choice")
    if isinstance(choice, str):
        return CallableFunctions(functions, Mode(choice))
    if choice.function is not None:
        _named(functions, {choice.function.name})
        return CallableFunctions(functions, Mode.REQUIRED, choice.function.name)
    allowed = choice.allowed_tools or _AllowedTools()
    return CallableFunctions(_named(functions, allowed.names), Mode(allowed.mode), among=functions)


def _named(functions: list[Function], names: set[str]) -> list[Function]:
    found = [function for function in functions if function.name in names]
    if not found:
        raise LegatoError(Reason.REQUEST_INVALID, Sentence("tool_choice_unknown"), param="tool_choice")
    return found
