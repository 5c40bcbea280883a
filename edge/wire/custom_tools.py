"""Custom tools, which take any text, as functions with that text as their one argument: models are told only those."""

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw

from services.chassis.timing.yielder import Yielder
from services.rules.custom_tools import INPUT, MARK, CustomForm, to_arguments

_NULL: Final = Raw(b"null")
_SCHEMA: Final = {
    "type": "object",
    "properties": {INPUT: {"type": "string", "description": "The whole input of the tool."}},
    "required": [INPUT],
    "additionalProperties": False,
}
# The beginning of the arguments, and what of a JSON string is complete at the end of a piece.
_HEAD: Final = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
_WHOLE_CHARACTERS: Final = re.compile(
    r'(?:[^"\\]++|\\["\\/bfnrt]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*+"
)

_arguments_decoder = msgspec.json.Decoder(dict[str, str])
_text_decoder = msgspec.json.Decoder(str)
_list_decoder = msgspec.json.Decoder(list[Raw])
_objects_decoder = msgspec.json.Decoder(list[dict[str, Any]])
_object_decoder = msgspec.json.Decoder(dict[str, Any])
_fields_decoder = msgspec.json.Decoder(dict[str, Raw])


def define_function(description: str, syntax: str | None, grammar: str | None) -> dict[str, object]:
    """Returns the function, but for its name. Its description has the grammar of the input, if that has one, and its
    mark all that the client described."""
    form = CustomForm(description, syntax, grammar)
    if grammar:
        description = f"{description}\n\nThe input must match this grammar ({syntax}):\n{grammar}".lstrip()
    return {**({"description": description} if description else {}), "parameters": _SCHEMA, MARK: form}


def to_functions(tools_json: bytes) -> bytes:
    """Returns a request's tools, all of them functions."""
    return msgspec.json.encode(list(map(_function, _tools_decoder.decode(tools_json)))) if tools_json else b""


class _Tool(msgspec.Struct):
    type: str
    custom: Raw = Raw()


class _Grammar(msgspec.Struct):
    syntax: str
    definition: str


class _Format(msgspec.Struct):
    grammar: _Grammar | None = None


class _CustomTool(msgspec.Struct):
    name: str
    description: str | None = None
    format: _Format | None = None


_tools_decoder = msgspec.json.Decoder(list[Raw])
_tool_decoder = msgspec.json.Decoder(_Tool)
_custom_tool_decoder = msgspec.json.Decoder(_CustomTool)


def _function(raw_tool: Raw) -> object:
    tool = _tool_decoder.decode(raw_tool)
    if tool.type != "custom":
        return raw_tool
    custom = _custom_tool_decoder.decode(tool.custom)
    grammar = None if custom.format is None else custom.format.grammar
    syntax, definition = (None, None) if grammar is None else (grammar.syntax, grammar.definition)
    function = {"name": custom.name, **define_function(custom.description or "", syntax, definition)}
    others = {name: value for name, value in _fields_decoder.decode(raw_tool).items() if name not in ("type", "custom")}
    return {**others, "type": "function", "function": function}


def to_function_choice(choice_json: bytes) -> bytes:
    """Returns a `tool_choice` among functions alone."""
    if b'"custom"' not in choice_json:
        return choice_json
    choice = _object_decoder.decode(choice_json)
    if "allowed_tools" in choice:
        choice["allowed_tools"]["tools"] = list(map(_named_function, choice["allowed_tools"]["tools"]))
    return msgspec.json.encode(_named_function(choice))


def _named_function(chosen: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": chosen["custom"]} if chosen["type"] == "custom" else chosen


async def to_function_calls(messages_json: Raw, yielder: Yielder) -> Raw:
    """Returns the messages, with calls of functions alone."""
    converted = []
    for raw_message in _list_decoder.decode(messages_json):
        converted.append(_with_function_calls(raw_message) if b'"custom"' in bytes(raw_message) else raw_message)
        await yielder.spend(len(memoryview(raw_message)))
    return Raw(msgspec.json.encode(converted))


def _with_function_calls(raw_message: Raw) -> object:
    fields: dict[str, object] = {**_fields_decoder.decode(raw_message)}
    calls = fields.get("tool_calls")
    if isinstance(calls, Raw) and calls != _NULL:
        fields["tool_calls"] = list(map(_function_call, _objects_decoder.decode(calls)))
    return fields


def _function_call(call: dict[str, Any]) -> dict[str, Any]:
    custom = call.get("custom")
    if call.get("type") != "custom" or custom is None:
        return call
    function = {"name": custom["name"], "arguments": to_arguments(custom["input"])}
    others = {name: value for name, value in call.items() if name != "custom"}
    return {**others, "type": "function", "function": function}


class CustomInput:
    """The input of one call, taken from the JSON of its arguments as they come."""

    def __init__(self) -> None:
        self._arguments: list[str] = []
        self._pending = ""
        self._is_begun = False
        self._taken: list[str] = []

    def take(self, arguments: str) -> str:
        """Returns what more of the input is complete."""
        self._arguments.append(arguments)
        self._pending += arguments
        if not self._is_begun and (head := _HEAD.match(self._pending)) is not None:
            self._is_begun = True
            self._pending = self._pending[head.end() :]
        characters = _WHOLE_CHARACTERS.match(self._pending) if self._is_begun else None
        if characters is None:
            return ""
        self._pending = self._pending[characters.end() :]
        self._taken.append(_text_decoder.decode(f'"{characters[0]}"'))
        return self._taken[-1]

    @property
    def whole(self) -> str:
        """The input as far as it has come; all arguments if the model did not keep to their form."""
        arguments = "".join(self._arguments)
        try:
            return _arguments_decoder.decode(arguments)[INPUT]
        except (msgspec.DecodeError, KeyError):
            return "".join(self._taken) or arguments


def input_of(arguments: str) -> str:
    """Returns the input of a whole call."""
    custom = CustomInput()
    custom.take(arguments)
    return custom.whole


class CustomCalls:
    """The calls of custom tools in one answer, by their index."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._inputs: dict[int, CustomInput] = {}
        # The characters of each input that were taken.
        self._taken: dict[int, int] = {}

    def take(self, index: int, name: str, arguments: str) -> str | None:
        """Returns what more of the input is complete; None if the call is one of a function."""
        if name in self._names:
            self._inputs[index], self._taken[index] = CustomInput(), 0
        custom = self._inputs.get(index)
        if custom is None:
            return None
        text = custom.take(arguments)
        self._taken[index] += len(text)
        return text

    def take_rest(self) -> Iterator[tuple[int, str]]:
        """Yields what is left at the end of the answer: of calls that do not keep to the form of their arguments."""
        for index, custom in self._inputs.items():
            if rest := custom.whole[self._taken[index] :]:
                self._taken[index] += len(rest)
                yield index, rest
