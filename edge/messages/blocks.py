"""Renders Anthropic's messages, which are made of blocks, as messages of chat completions."""

from typing import Final

import msgspec
from msgspec import Raw

from edge.messages.fields import Message, MessageBlock
from edge.wire.chat_request import BYTES_PER_ELEMENT
from edge.wire.checked_json import check_object, decode_part, invalid, is_object, present
from edge.wire.element_reader import ElementReader
from edge.wire.request_fields import NULL
from edge.wire.sealed_reasoning import past_reasoning
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder

_QUOTE, _BRACKET = b'"['
_EMPTY: Final = Raw(b'""')
_TEXT: Final = Raw(b'"text"')
# What a result begins with that is an error: chat completions have no other place for it.
_ERROR: Final = b'"Error'
_THOUGHTS: Final = ("thinking", "redacted_thinking")

_encode = msgspec.json.encode
_message_decoder = msgspec.json.Decoder(Message)
_block_decoder = msgspec.json.Decoder(MessageBlock)

# The fields of a part of a message, as JSON.
_Part = dict[str, Raw]


class ChatMessages(ElementReader):
    def __init__(self, yielder: Yielder) -> None:
        super().__init__(yielder)
        self.rendered: list[bytes] = []
        # Names of what has no place in a chat.
        self.ignored: set[str] = set()
        # The size of what was thought in each turn that has some. A turn ends where the user speaks.
        self.thought_bytes: list[int] = []
        self._has_thought = False

    async def add_system(self, content: Raw) -> None:
        """Adds the instructions that stand before the messages."""
        blocks = await self._blocks(content, "system")
        if isinstance(blocks, Raw):
            self._say("system", blocks)
        elif blocks:
            await self._add_said("system", blocks, "system")

    async def add(self, messages: Raw) -> None:
        if not present(messages):
            raise invalid(Sentence("messages_missing"), "messages")
        raw_messages = self._split(messages, "messages")
        if not raw_messages:
            raise invalid(Sentence("messages_empty"), "messages")
        for index, raw_message in enumerate(raw_messages):
            message = decode_part(_message_decoder, raw_message, f"messages[{index}]")
            place = f"messages[{index}].content"
            blocks = await self._blocks(message.content, place)
            if isinstance(blocks, Raw):
                self._say(message.role, blocks)
            elif message.role == "assistant":
                await self._add_answer(blocks, place)
            elif blocks:
                await self._add_said(message.role, blocks, place)
            else:
                raise invalid(Sentence("content_empty", name=place), place)

    async def _blocks(self, content: Raw, place: str) -> Raw | list[MessageBlock]:
        """Returns a text, or the blocks of what is a list."""
        kind = memoryview(content)[0]
        if kind == _QUOTE:
            await self._yielder.spend(len(memoryview(content)) + BYTES_PER_ELEMENT)
            return content
        if kind != _BRACKET:
            raise invalid(Sentence("text_or_blocks_expected", name=place), place)
        blocks = []
        for index, raw_block in enumerate(self._split(content, place)):
            block = decode_part(_block_decoder, raw_block, f"{place}[{index}]")
            if block.cache_control:
                check_object(block.cache_control, f"{place}[{index}].cache_control")
            blocks.append(block)
            await self._yielder.spend(len(memoryview(raw_block)) + BYTES_PER_ELEMENT)
        return blocks

    def _count_thought(self, size_bytes: int) -> None:
        if not self._has_thought:
            self.thought_bytes.append(0)
            self._has_thought = True
        self.thought_bytes[-1] += size_bytes

    def _say(self, role: str, content: Raw | list[_Part], **fields: object) -> None:
        self._has_thought = self._has_thought and role != "user"
        self.rendered.append(_encode({"role": role, "content": content, **fields}))

    async def _add_said(self, role: str, blocks: list[MessageBlock], place: str) -> None:
        """Adds what a user or the system says. Results are messages of their own, which follow the calls."""
        parts = []
        for index, block in enumerate(blocks):
            if role == "user" and block.type == "tool_result":
                await self._add_result(block, f"{place}[{index}]")
            else:
                parts.append(_text(block, f"{place}[{index}]"))
            await self._yielder.spend(BYTES_PER_ELEMENT)
        if parts:
            self._say(role, _content(parts))

    async def _add_answer(self, blocks: list[MessageBlock], place: str) -> None:
        # Of thoughts the seals alone are taken, which have their texts, too.
        parts, calls, sealed = [], [], []
        for index, block in enumerate(blocks):
            if block.type == "tool_use":
                calls.append(self._call(block, f"{place}[{index}]"))
            elif block.type in _THOUGHTS:
                sealed.append(block.signature or block.data or "")
                self._count_thought(len(memoryview(block.thinking)) or len(sealed[-1]))
            else:
                parts.append(_text(block, f"{place}[{index}]"))
            await self._yielder.spend(BYTES_PER_ELEMENT)
        fields: dict[str, object] = {"tool_calls": calls} if calls else {}
        content = _content(parts) if parts else NULL if calls else _EMPTY
        self._say("assistant", content, **fields, **past_reasoning(sealed))

    def _call(self, block: MessageBlock, place: str) -> dict[str, object]:
        if not block.id or not block.name:
            raise invalid(Sentence("call_incomplete", name=place), place)
        if not is_object(block.input):
            raise invalid(Sentence("object_expected", name=f"{place}.input"), f"{place}.input")
        if _mark(block):
            self.ignored.add("tool_use.cache_control")
        function = {"name": block.name, "arguments": str(memoryview(block.input), "utf-8")}
        return {"id": block.id, "type": "function", "function": function}

    async def _add_result(self, block: MessageBlock, place: str) -> None:
        if not block.tool_use_id:
            raise invalid(Sentence("field_missing", name=f"{place}.tool_use_id"), f"{place}.tool_use_id")
        content, place = block.content, f"{place}.content"
        blocks = await self._blocks(content, place) if present(content) else _EMPTY
        if isinstance(blocks, Raw):
            parts = [_part(blocks)]
        else:
            parts = [_text(each, f"{place}[{index}]") for index, each in enumerate(blocks)] or [_part(_EMPTY)]
        if block.is_error and not bytes(parts[0]["text"]).startswith(_ERROR):
            parts[0]["text"] = Raw(_ERROR + b": " + bytes(parts[0]["text"])[1:])
        parts[-1] |= _mark(block)
        self._say("tool", _content(parts), tool_call_id=block.tool_use_id)


def _text(block: MessageBlock, place: str) -> _Part:
    if block.type != "text":
        raise invalid(Sentence("block_refused", name=place), place)
    if not block.text or memoryview(block.text)[0] != _QUOTE:
        raise invalid(Sentence("text_expected", name=f"{place}.text"), f"{place}.text")
    return _part(block.text) | _mark(block)


def _part(text: Raw) -> _Part:
    return {"type": _TEXT, "text": text}


def _mark(block: MessageBlock) -> _Part:
    return {"cache_control": block.cache_control} if present(block.cache_control) else {}


def _content(parts: list[_Part]) -> Raw | list[_Part]:
    """Returns the parts, or the text alone if there is nothing else to it."""
    return parts[0]["text"] if len(parts) == 1 and "cache_control" not in parts[0] else parts
