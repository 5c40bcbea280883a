"""Names of functions that a provider refuses, in the form that it takes.

What the model then calls has the client's name again. The other one depends on nothing but the name, so that it is the
same in every turn.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from services.router.providers.base import ProviderCall
from services.router.schema.messages import Message, Messages, PastFunction, PastToolCall
from services.router.schema.tools import Tools

_UNUSUAL: Final = re.compile(r"[^a-zA-Z0-9_-]")
# Of 64 characters, which all vendors take, with a hash behind them.
_KEPT_CHARACTERS: Final = 54

_lists: Final = msgspec.json.Decoder(list[dict[str, Any]])
_values: Final = msgspec.json.Decoder(Any)


def rename_tools(call: ProviderCall, accepted: re.Pattern[str]) -> Mapping[str, str]:
    """Renames in the call what is not accepted, also in earlier turns; returns the client's names by the new ones."""
    names = {name: _accepted_name(name) for name in _names_in(call) if not accepted.fullmatch(name)}
    if names:
        call.tools = _renamed_tools(call.tools, names)
        call.messages = _renamed_messages(call.messages, names)
    return {renamed: name for name, renamed in names.items()}


def _accepted_name(name: str) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"_{_UNUSUAL.sub('_', name)[:_KEPT_CHARACTERS]}_{digest}"


def _names_in(call: ProviderCall) -> set[str]:
    tools = call.tools.parsed
    names = set() if tools is None else {function.name for function in tools.among or tools.functions}
    return names.union(
        past.function.name
        for message in call.messages.parsed
        for past in message.calls
        if past.function is not None and past.function.name
    )


def _renamed_tools(tools: Tools, names: Mapping[str, str]) -> Tools:
    if not tools.json:
        return tools
    renamed = [_renamed(tool, names) for tool in _lists.decode(tools.json)]
    choice: Any = _values.decode(tools.tool_choice_json or b"null")
    if isinstance(choice, dict):
        allowed = choice.get("allowed_tools")
        if isinstance(allowed, dict):
            allowed["tools"] = [_renamed(tool, names) for tool in allowed.get("tools", ())]
        else:
            choice = _renamed(choice, names)
    choice_json = msgspec.json.encode(choice) if tools.tool_choice_json else b""
    custom = {names.get(name, name): form for name, form in tools.custom.items()}
    return Tools(msgspec.json.encode(renamed), choice_json, custom)


def _renamed(tool: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    function = tool["function"]
    return {**tool, "function": {**function, "name": names.get(function["name"], function["name"])}}


def _renamed_messages(messages: Messages, names: Mapping[str, str]) -> Messages:
    def renamed(past: PastToolCall) -> PastToolCall:
        function = past.function or PastFunction()
        name = names.get(function.name or "", function.name)
        return msgspec.structs.replace(past, function=msgspec.structs.replace(function, name=name))

    changed: dict[int, Message] = {
        index: msgspec.structs.replace(message, tool_calls=list(map(renamed, message.calls)))
        for index, message in enumerate(messages.parsed)
        if message.calls
    }
    return messages.replace(changed)
