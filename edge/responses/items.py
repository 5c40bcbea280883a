"""The items of a request's input as the messages of a chat.

Texts stay the bytes that the client sent. A call is an item of its own here and a part of the assistant's message
there, so what the assistant said and called up to the next result, or the next message of others, is one message.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from edge.responses.tools import OfferedTools
from edge.wire.chat_request import BYTES_PER_ELEMENT, check_count
from edge.wire.checked_json import decode_part, invalid
from edge.wire.request_fields import ABSENT, NULL
from edge.wire.sealed_reasoning import past_reasoning
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder
from services.rules.custom_tools import to_arguments

_QUOTE: Final = ord('"')
_TEXT_PARTS: Final = ("input_text", "output_text", "text")

_encode = msgspec.json.encode


class _InputItem(Struct):
    """An item of any type, with the fields that those have which are taken."""

    type: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Raw = ABSENT
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: Raw = ABSENT
    # What the model thought, sealed.
    encrypted_content: str | None = None

    def need(self, place: str, *fields: str) -> None:
        for name in fields:
            if getattr(self, name) in (None, ABSENT, NULL) or (name == "call_id" and not self.call_id):
                raise invalid(Sentence("field_missing", name=f"{place}.{name}"), f"{place}.{name}")


class _SaidPart(Struct):
    type: str
    text: Raw = NULL
    refusal: Raw = NULL


@dataclass(slots=True)
class _OpenTurn:
    """A turn of the assistant: all that it has thought, said and called since others spoke."""

    sealed: list[str] = field(default_factory=list)
    texts: list[Raw] = field(default_factory=list)
    refusals: list[Raw] = field(default_factory=list)
    calls: list[dict[str, object]] = field(default_factory=list)

    @property
    def has_only_thoughts(self) -> bool:
        return bool(self.sealed) and not (self.texts or self.refusals or self.calls)


_item_decoder = msgspec.json.Decoder(_InputItem)
_content_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(str | list[Raw])
_part_decoder = msgspec.json.Decoder(_SaidPart)
_text_decoder = msgspec.json.Decoder(str)


class InputReader:
    """Renders items as messages, each as JSON."""

    def __init__(self, tools: OfferedTools, yielder: Yielder) -> None:
        self._tools = tools
        self._yielder = yielder
        self._messages: list[bytes] = []
        self._turn: _OpenTurn | None = None
        self._elements = 0

    async def read(self, raw_items: list[Raw]) -> list[bytes]:
        for index, raw_item in enumerate(raw_items):
            name = f"input[{index}]"
            self._count(1, name)
            await self._add(decode_part(_item_decoder, raw_item, name), name)
            await self._yielder.spend(len(memoryview(raw_item)) + BYTES_PER_ELEMENT)
        self._close_turn()
        return self._messages

    async def _add(self, item: _InputItem, name: str) -> None:
        match item.type or ("message" if item.role else "item_reference"):
            case "message":
                item.need(name, "role", "content")
                await self._add_message(item, f"{name}.content")
            case "function_call":
                item.need(name, "call_id", "name", "arguments")
                self._add_call(item, item.arguments or "")
            case "custom_tool_call":
                item.need(name, "call_id", "name", "input")
                self._add_call(item, to_arguments(item.input or ""))
            case "function_call_output" | "custom_tool_call_output":
                item.need(name, "call_id", "output")
                texts, _ = await self._read_content(item.output, f"{name}.output")
                self._close_turn()
                self._say({"role": "tool", "tool_call_id": item.call_id, "content": _content(texts)})
            case "reasoning":
                self._take_reasoning(item.encrypted_content or "")
            case "item_reference":
                raise invalid(Sentence("items_not_stored"), name)
            case kind if kind != "web_search_call":
                raise invalid(Sentence("item_kinds"), f"{name}.type")

    async def _add_message(self, item: _InputItem, place: str) -> None:
        texts, refusals = await self._read_content(item.content, place)
        if item.role == "assistant":
            if self._turn is None or not (self._turn.calls or self._turn.has_only_thoughts):
                self._close_turn()
                self._turn = _OpenTurn()
            self._turn.texts += texts
            self._turn.refusals += refusals
        elif not texts:
            raise invalid(Sentence("content_empty", name=place), place)
        else:
            self._close_turn()
            self._say({"role": item.role, "content": _content(texts)})

    def _add_call(self, item: _InputItem, arguments: str) -> None:
        self._turn = self._turn or _OpenTurn()
        function = {"name": self._tools.function_name(item.namespace, item.name or ""), "arguments": arguments}
        self._turn.calls.append({"id": item.call_id, "type": "function", "function": function})

    def _take_reasoning(self, sealed: str) -> None:
        """Takes back what the model has thought. Summaries say it again, and are left out."""
        if sealed:
            self._turn = self._turn or _OpenTurn()
            self._turn.sealed.append(sealed)

    def _close_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.has_only_thoughts:
            message: dict[str, object] = {"role": "assistant", **past_reasoning(turn.sealed)}
            if turn.texts or not (turn.calls or turn.refusals):
                message["content"] = _content(turn.texts)
            if turn.calls:
                message["tool_calls"] = turn.calls
            if turn.refusals:
                message["refusal"] = turn.refusals[0]
            self._say(message)

    def _say(self, message: dict[str, object]) -> None:
        self._messages.append(_encode(message))

    async def _read_content(self, content: Raw, place: str) -> tuple[list[Raw], list[Raw]]:
        """Returns the texts and the refusals."""
        if memoryview(content)[0] == _QUOTE:
            return [content], []
        raw_parts = decode_part(_content_decoder, content, place)
        self._count(len(raw_parts), place)
        texts: list[Raw] = []
        refusals: list[Raw] = []
        for index, raw_part in enumerate(raw_parts):
            name = f"{place}[{index}]"
            part = decode_part(_part_decoder, raw_part, name)
            if part.type == "refusal":
                refusals.append(_checked_text(part.refusal, f"{name}.refusal"))
            elif part.type in _TEXT_PARTS:
                texts.append(_checked_text(part.text, f"{name}.text"))
            else:
                raise invalid(Sentence("response_part_form"), place)
            await self._yielder.spend(BYTES_PER_ELEMENT)
        return texts, refusals

    def _count(self, elements: int, name: str) -> None:
        self._elements += elements
        check_count(self._elements, name)


def _content(texts: list[Raw]) -> object:
    """Returns the content: one text as a string, as most servers prefer."""
    return texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts] or ""


def _checked_text(text: Raw, name: str) -> Raw:
    if memoryview(text)[0] != _QUOTE:
        decode_part(_text_decoder, text, name)
    return text
