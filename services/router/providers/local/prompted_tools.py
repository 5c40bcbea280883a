"""Tool calling for a model whose chat template has no tools.

The functions are described in a system message, the answer is constrained to a JSON schema, and earlier calls and
results are written as plain turns.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from services.router.providers.base import UNREADABLE
from services.router.schema.messages import (
    ABSENT,
    Message,
    Messages,
    decode_string,
    encode_string,
    unreadable,
)
from services.router.schema.tools import Function, Mode, ToolCallFragment, Tools

_ANY_OBJECT: dict[str, object] = {"type": "object"}


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
        """Returns the answer's schema. `exact` includes the argument schemas, not all of which compile to a grammar."""
        choices = [
            _object(name={"const": function.name}, arguments=_schema(function) if exact else _ANY_OBJECT)
            for function in self.functions
        ]
        if self.may_reply:
            choices.append(_object(reply={"type": "string"}))
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"anyOf": choices}}}


def read_offer(tools: Tools) -> Offer | None:
    """Reads the offered functions; None if this turn must be answered in text."""
    callable_functions = tools.parsed
    if callable_functions is None or callable_functions.mode is Mode.NONE:
        return None
    functions, forced = callable_functions.functions, callable_functions.forced
    if forced is not None:
        functions = [function for function in functions if function.name == forced]
    return Offer(functions, may_reply=callable_functions.mode is Mode.AUTO)


def read_answer(text: str) -> str | ToolCallFragment | None:
    """Parses the model's output as a text or a call; None if it was truncated."""
    try:
        answer = msgspec.json.decode(text, type=_CallOrReply)
    except UNREADABLE:
        return None
    if answer.name is None:
        return answer.reply
    return ToolCallFragment(name=answer.name, arguments=msgspec.json.encode(answer.arguments).decode())


def render_as_plain_text(messages: Messages) -> Messages:
    """Rewrites the conversation for a template with only system, user and assistant roles."""
    names: dict[str, str] = {}
    return Messages([_rendered(message, names) for message in messages.parsed], messages.size_bytes)


def _rendered(message: Message, names: dict[str, str]) -> Message:
    """Rewrites one message; `names` maps call ids to the functions called so far."""
    texts = list(map(decode_string, message.texts))
    if message.role == "tool":
        name = names.get(message.tool_call_id or "", "the function")
        return _message("user", f"{name} gave: {''.join(texts)}")
    # Calls in messages of other roles are ignored.
    for call in message.calls if message.role == "assistant" else ():
        function = call.function
        if call.id is None or function is None or function.name is None or function.arguments is ABSENT:
            # The edge rejects these, but others may call a router too.
            raise unreadable()
        names[call.id] = function.name
        texts.append(f'{{"name": "{function.name}", "arguments": {decode_string(function.arguments)}}}')
    return _message(message.role, "".join(texts))


def _message(role: str, content: str) -> Message:
    return Message(role=role, content=encode_string(content))


def _schema(function: Function) -> dict[str, object] | msgspec.Raw:
    return function.parameters if function.has_parameters else _ANY_OBJECT


def _object(**properties: dict[str, object] | msgspec.Raw) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
