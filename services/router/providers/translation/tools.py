"""Reads which functions the model may call, for providers with another format than the client's."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar

import msgspec
from msgspec import Raw

from services.chassis.errors import LegatoError, Reason

# Values that stand for no schema.
_NOTHING = (Raw(), Raw(b"null"), Raw(b"{}"))


class Function(msgspec.Struct):
    name: str
    description: str | None = None
    # A JSON schema, or null.
    parameters: Raw = Raw()
    strict: bool | None = None

    @property
    def has_parameters(self) -> bool:
        return self.parameters not in _NOTHING


class Mode(Enum):
    # The model decides.
    AUTO = "auto"
    # The functions only explain earlier turns; this one must be answered in text.
    NONE = "none"
    # One of the functions must be called.
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, repr=False)
class Tools:
    functions: list[Function]
    mode: Mode = Mode.AUTO
    # The one function that must be called; only with Mode.REQUIRED.
    forced: str | None = None


class _Tool(msgspec.Struct):
    function: Function


class _Named(msgspec.Struct):
    function: Function | None = None


class _AllowedTools(msgspec.Struct):
    mode: Literal["auto", "required"] = "auto"
    tools: list[_Named] = []


class _Choice(msgspec.Struct):
    function: Function | None = None
    allowed_tools: _AllowedTools | None = None


_Given = TypeVar("_Given")

_tools = msgspec.json.Decoder(list[_Tool])
_choices = msgspec.json.Decoder(Literal["auto", "none", "required"] | _Choice)


def read_tools(tools_json: bytes, tool_choice_json: bytes) -> Tools | None:
    if not tools_json:
        return None
    functions = [tool.function for tool in _decoded(_tools, tools_json, "tools")]
    choice = _decoded(_choices, tool_choice_json or b'"auto"', "tool_choice")
    if isinstance(choice, str):
        return Tools(functions, Mode(choice))
    if choice.function is not None:
        _named(functions, {choice.function.name})
        return Tools(functions, Mode.REQUIRED, choice.function.name)
    allowed = choice.allowed_tools or _AllowedTools()
    names = {tool.function.name for tool in allowed.tools if tool.function is not None}
    return Tools(_named(functions, names), Mode(allowed.mode))


def _decoded(decoder: msgspec.json.Decoder[_Given], given: bytes, param: str) -> _Given:
    try:
        return decoder.decode(given)
    except (msgspec.DecodeError, RecursionError):
        # The edge rejects these, but others may call a router too.
        raise LegatoError(Reason.REQUEST_INVALID, f"{param} could not be read.", param=param) from None


def _named(functions: list[Function], names: set[str]) -> list[Function]:
    found = [function for function in functions if function.name in names]
    if not found:
        raise LegatoError(
            Reason.REQUEST_INVALID, "tool_choice names a function that is not in tools.", param="tool_choice"
        )
    return found
