"""Tool calling for a model whose template knows nothing of tools.

The functions are described in a system message, the answer is bound to a JSON schema, and calls and results of earlier
turns are told in plain turns.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from services.router.providers.answer import UNREADABLE
from services.router.providers.tools import Function, Mode, read_tools
from services.router.toolcalls import ToolCallFragment

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class _CallOrReply(msgspec.Struct):
    reply: str | None = None
    name: str | None = None
    arguments: dict[str, msgspec.Raw] = {}


@dataclass(frozen=True, slots=True, repr=False)
class Offer:
    """The functions that may be called in this turn."""

    functions: list[Function]
    may_reply: bool

    @property
    def guidance(self) -> str:
        lines = [
            f"- {function.name}: {function.description or ''} Parameters:"
            f" {msgspec.json.encode(_schema(function)).decode()}"
            for function in self.functions
        ]
        ways = 'Answer with JSON. To call a function: {"name": NAME, "arguments": {...}}.'
        if self.may_reply:
            ways += ' When no function helps: {"reply": TEXT}.'
        return "\n".join(("You can call these functions:", *lines, ways))

    def response_format(self, *, exact: bool) -> dict[str, Any]:
        """`exact` takes over the schemas of the arguments; not every schema can be turned into a grammar."""
        choices = [
            _object(name={"const": function.name}, arguments=_schema(function) if exact else _ANY_OBJECT)
            for function in self.functions
        ]
        if self.may_reply:
            choices.append(_object(reply={"type": "string"}))
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"anyOf": choices}}}


def read_offer(tools_json: bytes, tool_choice_json: bytes) -> Offer | None:
    """None: this turn is to be answered in words."""
    tools = read_tools(tools_json, tool_choice_json)
    if tools is None or tools.mode is Mode.NONE:
        return None
    functions = tools.functions
    if tools.forced is not None:
        functions = [function for function in functions if function.name == tools.forced]
    return Offer(functions, may_reply=tools.mode is Mode.AUTO)


def read_answer(text: str) -> str | ToolCallFragment | None:
    """What the model said: words, or a call. None: it was cut short."""
    try:
        answer = msgspec.json.decode(text, type=_CallOrReply)
    except UNREADABLE:
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
        # Who else has calls has not made them.
        for call in (role == "assistant" and message.get("tool_calls")) or ():
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


def _schema(function: Function) -> dict[str, Any] | msgspec.Raw:
    return function.parameters if function.has_parameters else _ANY_OBJECT


def _object(**properties: dict[str, Any] | msgspec.Raw) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
