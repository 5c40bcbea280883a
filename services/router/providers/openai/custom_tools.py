"""Custom tools of OpenAI's models: what the request has as functions is told as what the client offered, and what a
model gives to one is read as the arguments of its function."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from services.router.schema.messages import ABSENT, Messages, PastToolCall, decode_string
from services.router.schema.tools import Tools
from services.rules.custom_tools import INPUT, CustomForm

_CUSTOM: Final = Raw(b'"custom"')
_HEAD: Final = f'{{"{INPUT}":"'
_TAIL: Final = '"}'

_lists = msgspec.json.Decoder(list[Raw])
_objects = msgspec.json.Decoder(dict[str, Raw])
_values = msgspec.json.Decoder(Any)
_names = msgspec.json.Decoder(str)
_arguments = msgspec.json.Decoder(dict[str, str])


class _Custom(msgspec.Struct, gc=False):
    name: str
    input: str


class _PastCustomCall(PastToolCall, gc=False, omit_defaults=True):
    custom: _Custom | None = None


def write_tools(tools: Tools) -> Tools:
    """Returns the tools of a chat completion. Functions keep their bytes."""
    written = [_tool(raw, tools.custom) for raw in _lists.decode(tools.json)]
    choice: Any = _values.decode(tools.tool_choice_json or b"null")
    if isinstance(choice, dict):
        if isinstance(allowed := choice.get("allowed_tools"), dict):
            allowed["tools"] = [_chosen(tool, tools.custom) for tool in allowed.get("tools", ())]
        choice = _chosen(choice, tools.custom)
    choice_json = msgspec.json.encode(choice) if tools.tool_choice_json else b""
    return Tools(msgspec.json.encode(written), choice_json, tools.custom)


def _tool(raw: Raw, forms: Mapping[str, CustomForm]) -> object:
    name = _names.decode(_objects.decode(_objects.decode(raw)["function"])["name"])
    if name not in forms:
        return raw
    custom = {"name": name, **describe(forms[name])}
    if (form := forms[name]).definition is not None:
        grammar = {"syntax": form.syntax, "definition": form.definition}
        custom["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": custom}


def describe(form: CustomForm) -> dict[str, object]:
    return {"description": form.description} if form.description else {}


def _chosen(choice: dict[str, Any], forms: Collection[str]) -> dict[str, Any]:
    function = choice.get("function")
    if isinstance(function, dict) and function.get("name") in forms:
        return {"type": "custom", "custom": {"name": function["name"]}}
    return choice


def write_calls(messages: Messages, names: Collection[str]) -> Messages:
    """Returns the messages with calls of these tools as such; the same if there are none."""
    changed = {}
    for index, message in enumerate(messages.parsed):
        if any(call.function is not None and call.function.name in names for call in message.calls):
            calls = [_past_call(call, names) for call in message.calls]
            changed[index] = msgspec.structs.replace(message, tool_calls=calls)
    return messages.replace(changed)


def _past_call(call: PastToolCall, names: Collection[str]) -> PastToolCall:
    function = call.function
    if function is None or function.name is None or function.name not in names:
        return call
    return _PastCustomCall(id=call.id, type=_CUSTOM, custom=_Custom(function.name, input_of(function.arguments)))


def input_of(arguments: Raw) -> str:
    """Returns what a past call gave to its tool; all arguments if a model did not keep to their form."""
    text = "" if arguments is ABSENT else decode_string(arguments)
    try:
        return _arguments.decode(text)[INPUT]
    except (msgspec.DecodeError, KeyError):
        return text


class CustomInputs:
    """Writes what an answer gives to custom tools as the JSON of their arguments, while it comes."""

    def __init__(self) -> None:
        # The indices of calls whose JSON is not complete.
        self._open: set[int] = set()

    def write(self, index: int, text: str) -> str:
        """Returns the JSON of a piece of a call's input."""
        escaped = msgspec.json.encode(text).decode()[1:-1]
        if index in self._open:
            return escaped
        self._open.add(index)
        return _HEAD + escaped

    def end(self) -> Iterator[tuple[int, str]]:
        """Yields the end of the JSON of each call that has begun."""
        for index in sorted(self._open):
            yield index, _TAIL
        self._open.clear()
