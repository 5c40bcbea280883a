"""Custom tools, which take any text, as functions with that text as their one argument: chats have only functions."""

import re
from typing import Final

import msgspec

_INPUT: Final = "input"
_SCHEMA: Final = {
    "type": "object",
    "properties": {_INPUT: {"type": "string", "description": "The whole input of the tool."}},
    "required": [_INPUT],
    "additionalProperties": False,
}
# The beginning of the arguments, and what of a JSON string is complete at the end of a piece.
_HEAD: Final = re.compile(rf'\s*\{{\s*"{_INPUT}"\s*:\s*"')
_WHOLE_CHARACTERS: Final = re.compile(
    r'(?:[^"\\]++|\\["\\/bfnrt]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
    r"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*+"
)

_arguments_decoder = msgspec.json.Decoder(dict[str, str])
_text_decoder = msgspec.json.Decoder(str)


def define_function(description: str, syntax: str | None, grammar: str | None) -> dict[str, object]:
    """Returns the function, but for its name. Its description has the grammar of the input, if that has one."""
    if grammar:
        description = f"{description}\n\nThe input must match this grammar ({syntax}):\n{grammar}".lstrip()
    return {**({"description": description} if description else {}), "parameters": _SCHEMA}


def to_arguments(text: str) -> str:
    return msgspec.json.encode({_INPUT: text}).decode()


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
            return _arguments_decoder.decode(arguments)[_INPUT]
        except (msgspec.DecodeError, KeyError):
            return "".join(self._taken) or arguments
