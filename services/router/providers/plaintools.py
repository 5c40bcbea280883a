"""Tool calling for a model whose template knows nothing of tools.

The functions are described in a system message, the answer is bound to a JSON schema, and calls and results of earlier
turns are told in plain turns.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.router.toolcalls import ToolCallFragment

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    function: _Function


class _Named(msgspec.Struct):
    function: _Function | None = None


class _AllowedTools(msgspec.Struct):
    mode: str = "auto"
    tools: list[_Named] = []


class _Choice(msgspec.Struct):
    function: _Function | None = None
    allowed_tools: _AllowedTools | None = None


class _CallOrReply(msgspec.Struct):
    reply: str | None = None
    name: str | None = None
    arguments: dict[str, msgspec.Raw] = {}


@dataclass(frozen=True, slots=True, repr=False)
class Offer:
    """The functions that may be called in this turn."""

    functions: list[_Function]
    may_reply: bool

    @property
    def guidance(self) -> str:
        lines = [
            f"- {function.name}: {function.description or ''} Parameters:"
            f" {msgspec.json.encode(function.parameters or _ANY_OBJECT).decode()}"
            for function in self.functions
        ]
        ways = 'Answer with JSON. To call a function: {"name": NAME, "arguments": {...}}.'
        if self.may_reply:
            ways += ' When no function helps: {"reply": TEXT}.'
        return "\n".join(("You can call these functions:", *lines, ways))

    def response_format(self, *, exact: bool) -> dict[str, Any]:
        """`exact` takes over the schemas of the arguments; not every schema can be turned into a grammar."""
        choices = [
            _object(name={"const": function.name}, arguments=(exact and function.parameters) or _ANY_OBJECT)
            for function in self.functions
        ]
        if self.may_reply:
            choices.append(_object(reply={"type": "string"}))
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"anyOf": choices}}}


def read_offer(tools_json: bytes, tool_choice_json: bytes) -> Offer | None:
    """None: this turn is to be answered in words."""
    functions = [tool.function for tool in msgspec.json.decode(tools_json, type=list[_Tool])]
    choice = msgspec.json.decode(tool_choice_json or b'"auto"', type=str | _Choice)
    if isinstance(choice, str):
        return None if choice == "none" else Offer(functions, may_reply=choice != "required")
    if choice.function is not None:
        return Offer(_named(functions, {choice.function.name}), may_reply=False)
    allowed = choice.allowed_tools or _AllowedTools()
    names = {tool.function.name for tool in allowed.tools if tool.function is not None}
    return Offer(_named(functions, names), may_reply=allowed.mode != "required")


def _named(functions: list[_Function], names: set[str]) -> list[_Function]:
    found = [function for function in functions if function.name in names]
    if not found:
        raise LegatoError(Reason.REQUEST_INVALID, "tool_choice names no function of tools.", param="tool_choice")
    return found


def read_answer(text: str) -> str | ToolCallFragment | None:
    """What the model said: words, or a call. None: it was cut short."""
    try:
        answer = msgspec.json.decode(text, type=_CallOrReply)
    except msgspec.DecodeError:
        return None
    if answer.name is None:
        return answer.reply
    return ToolCallFragment(name=answer.name, arguments=answer.arguments)


def tell_plainly(messages_json: bytes, guidance: str = "") -> bytes:
    """The same conversation for a template that knows system, user and assistant alone."""
    messages = msgspec.json.decode(messages_json, type=list[dict[str, Any]])
    told: list[dict[str, Any]] = []
    names: dict[str, str] = {}
    for message in messages:
        role, content = message["role"], _text(message.get("content"))
        if guidance and role != "system":
            told.append({"role": "system", "content": guidance})
            guidance = ""
        for call in message.get("tool_calls") or ():
            function = call["function"]
            names[call["id"]] = function["name"]
            content += f'{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}'
        if role == "tool":
            name = names.get(message.get("tool_call_id", ""), "the function")
            role, content = "user", f"{name} gave: {content}"
        told.append({"role": role, "content": content})
    if guidance:
        told.append({"role": "system", "content": guidance})
    return msgspec.json.encode(told)


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content)
    return content or ""


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
