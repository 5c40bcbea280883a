"""The tools of a request, described and parsed once, and the calls that models answer with."""

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from services.chassis.errors import LegatoError, Reason

# Values that stand for no schema.
_NO_SCHEMA: Final = (Raw(), Raw(b"null"), Raw(b"{}"))


class Function(Struct):
    name: str
    description: str | None = None
    # A JSON schema, or null.
    parameters: Raw = Raw()
    strict: bool | None = None

    @property
    def has_parameters(self) -> bool:
        return self.parameters not in _NO_SCHEMA


class Tool(Struct):
    function: Function | None = None


class _AllowedTools(Struct):
    mode: Literal["auto", "required"] = "auto"
    tools: list[Tool] = []


class _ToolChoice(Struct):
    function: Function | None = None
    allowed_tools: _AllowedTools | None = None


class ToolCallFragment(Struct, gc=False):
    """A part of a tool call as the provider sent it; any field may be missing."""

    index: int | None = None
    call_id: str | None = None
    name: str | None = None
    # Some providers send the arguments as an object, which is then complete.
    arguments: str | dict[str, Raw] | None = None

    def __repr__(self) -> str:
        # Content is never printed.
        return "ToolCallFragment(...)"


_tools = msgspec.json.Decoder(list[Tool])
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


class Tools:
    """The tools of one chat as JSON, which OpenAI-compatible providers send on unchanged. Parsed when first read."""

    __slots__ = ("_parsed", "json", "tool_choice_json")

    def __init__(self, json: bytes = b"", tool_choice_json: bytes = b"") -> None:
        """`json` is empty if there are none; `tool_choice_json` if the client did not send it."""
        self.json = json
        self.tool_choice_json = tool_choice_json
        self._parsed: CallableFunctions | None = None

    def read(self) -> CallableFunctions | None:
        """Returns the parsed tools; None if there are none."""
        if self._parsed is None and self.json:
            self._parsed = _read(self.json, self.tool_choice_json)
        return self._parsed


NO_TOOLS: Final = Tools()


def _read(tools_json: bytes, tool_choice_json: bytes) -> CallableFunctions:
    tools = _decoded(_tools, tools_json, "tools")
    functions = [tool.function for tool in tools if tool.function is not None]
    if len(functions) < len(tools):
        raise _unreadable("tools")
    choice = _decoded(_tool_choice, tool_choice_json or b'"auto"', "tool_choice")
    if isinstance(choice, str):
        return CallableFunctions(functions, Mode(choice))
    if choice.function is not None:
        _named(functions, {choice.function.name})
        return CallableFunctions(functions, Mode.REQUIRED, choice.function.name)
    allowed = choice.allowed_tools or _AllowedTools()
    names = {tool.function.name for tool in allowed.tools if tool.function is not None}
    return CallableFunctions(_named(functions, names), Mode(allowed.mode))


_Decoded = TypeVar("_Decoded")


def _decoded(decoder: msgspec.json.Decoder[_Decoded], given: bytes, param: str) -> _Decoded:
    try:
        return decoder.decode(given)
    except (msgspec.DecodeError, RecursionError):
        raise _unreadable(param) from None


def _named(functions: list[Function], names: set[str]) -> list[Function]:
    found = [function for function in functions if function.name in names]
    if not found:
        raise _refusal("tool_choice names a function that is not in tools.", "tool_choice")
    return found


def _unreadable(param: str) -> LegatoError:
    # The edge rejects these, but others may call a router too.
    return _refusal(f"{param} could not be read.", param)


def _refusal(message: str, param: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)
