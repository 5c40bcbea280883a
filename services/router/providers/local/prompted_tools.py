"""Tool calling for a model whose template knows nothing of tools.

The functions are described in a system message, the answer is bound to a JSON schema, and calls and results of earlier
turns are told in plain turns.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from services.chassis.errors import LegatoError, Reason
from services.router.answers.toolcalls import ToolCallFragment
from services.router.providers.answer import UNREADABLE
from services.router.providers.translation.conversion import ConversionYielder, read_list
from services.router.providers.translation.tools import Function, Mode, read_tools

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


class _Part(msgspec.Struct, gc=False):
    text: str | None = None


class _PastFunction(msgspec.Struct, gc=False):
    name: str
    arguments: str


class _PastCall(msgspec.Struct, gc=False):
    id: str
    function: _PastFunction


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[msgspec.Raw] | None = None
    tool_call_id: str | None = None


_message = msgspec.json.Decoder(_Message)
_past_call = msgspec.json.Decoder(_PastCall)


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


async def tell_plainly(messages_json: bytes, guidance: str = "") -> bytes:
    """The same conversation for a template that knows system, user and assistant alone."""
    yielder = ConversionYielder()
    told: list[bytes] = []
    names: dict[str, str] = {}
    try:
        for raw_message in await read_list(messages_json, yielder):
            message = _message.decode(raw_message)
            if guidance and message.role != "system":
                told.append(_told("system", guidance))
                guidance = ""
            told.append(await _told_plainly(message, names, yielder))
            if yielder.is_due_after(raw_message):
                await yielder.pause()
    except (msgspec.DecodeError, RecursionError):
        # The edge lets none of these through; others may ask a router too.
        raise LegatoError(Reason.REQUEST_INVALID, "The messages could not be read.", param="messages") from None
    if guidance:
        told.append(_told("system", guidance))
    return b"[" + b",".join(told) + b"]"


async def _told_plainly(message: _Message, names: dict[str, str], yielder: ConversionYielder) -> bytes:
    """`names` are those of the functions that were called so far, by the ids of their calls."""
    texts = [_text(message.content)]
    # Who else has calls has not made them.
    for raw_call in (message.tool_calls if message.role == "assistant" else None) or ():
        call = _past_call.decode(raw_call)
        names[call.id] = call.function.name
        texts.append(f'{{"name": "{call.function.name}", "arguments": {call.function.arguments}}}')
        if yielder.is_due_after(raw_call):
            await yielder.pause()
    if message.role == "tool":
        name = names.get(message.tool_call_id or "", "the function")
        return _told("user", f"{name} gave: {texts[0]}")
    return _told(message.role, "".join(texts))


def _told(role: str, content: str) -> bytes:
    return msgspec.json.encode({"role": role, "content": content})


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):
        return "".join(part.text or "" for part in content)
    return content or ""


def _schema(function: Function) -> dict[str, Any] | msgspec.Raw:
    return function.parameters if function.has_parameters else _ANY_OBJECT


def _object(**properties: dict[str, Any] | msgspec.Raw) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
