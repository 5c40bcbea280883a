"""The messages of a chat: described here, and parsed once for all providers.

Texts stay raw JSON, because providers send them on as they are. A message of known fields alone keeps its bytes. Any
other is written anew without the rest: clients store an answer as an object and send all of it back, with null for
every missing field, its citations, and what they parsed from its text. OpenAI ignores that; others reject a message for
one unknown field. And the content of an uncounted field would be read by a model without being charged.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from services.chassis.errors import LegatoError, Reason
from services.chassis.timing.yielder import Yielder

# Scanning this much JSON takes a fraction of a millisecond.
SLICE_BYTES: Final = 256 * 1024
# The fixed cost of reading a part or a call, as a number of bytes.
BYTES_PER_ITEM: Final = 256
# The memory of a message, a part or a call, besides its texts.
BYTES_PER_OBJECT: Final = 400

# The value of a field that the client did not send.
ABSENT: Final = Raw()
NULL: Final = Raw(b"null")
# Values that stand for a missing field. Null content is kept: some servers require it beside calls.
_NOTHING: Final = (NULL, Raw(b"[]"))

# JSON around the values of a message with a role and a content, with common spaces.
_PLAIN_BYTES: Final = len('{"role": "", "content": }')
# Fields that may be any JSON.
_MESSAGE_VALUES: Final = ("tool_calls", "refusal", "reasoning_content", "reasoning", "prefix", "partial")
_PART_VALUES: Final = ("type", "text", "cache_control")
_CALL_VALUES: Final = ("type", "extra_content")
_QUOTE: Final = ord('"')
_BRACKET: Final = ord("[")


# A prompt may have 100,000 of the structs below. They form no reference cycles, so gc=False spares the collector them.
# Those named `_Strict` reject unknown fields; the others skip them.
class Part(Struct, gc=False, omit_defaults=True):
    type: Raw = ABSENT
    # A JSON string.
    text: Raw = ABSENT
    # For Anthropic's models behind OpenAI-compatible servers.
    cache_control: Raw = ABSENT


class PastFunction(Struct, gc=False, omit_defaults=True):
    name: str | None = None
    # A JSON string.
    arguments: Raw = ABSENT


class PastToolCall(Struct, gc=False, omit_defaults=True):
    id: str | None = None
    type: Raw = ABSENT
    function: PastFunction | None = None
    # Data of Google's models for their own calls.
    extra_content: Raw = ABSENT


_Item = TypeVar("_Item", bound=Struct)
_Content = TypeVar("_Content")
_ToolCalls = TypeVar("_ToolCalls")


class MessageFields(Struct, Generic[_Content, _ToolCalls], gc=False, omit_defaults=True):
    """A message. Its parts and calls are decoded after it, one by one."""

    role: str
    content: _Content = ABSENT  # type: ignore[assignment]
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: _ToolCalls = ABSENT  # type: ignore[assignment]
    # The text of a refusal: a JSON string.
    refusal: Raw = ABSENT
    # Reasoning, which some models require back with their calls.
    reasoning_content: Raw = ABSENT
    reasoning: Raw = ABSENT
    # Flags that the last message is the beginning of the answer.
    prefix: Raw = ABSENT
    partial: Raw = ABSENT

    @property
    def texts(self) -> list[Raw]:
        """The texts of the content, as JSON strings."""
        content = self.content
        if isinstance(content, list):
            return [part.text for part in content if part.text is not ABSENT]
        return [] if content is ABSENT or content == NULL else [cast(Raw, content)]

    @property
    def calls(self) -> Sequence[PastToolCall]:
        return self.tool_calls if isinstance(self.tool_calls, list) else ()


# A parsed message. Without parts, its content is a JSON string, null or absent; without calls, they are absent.
Message = MessageFields[Raw | list[Part], Raw | list[PastToolCall]]
_RawMessage = MessageFields[Raw, Raw]


class _StrictPart(Part, forbid_unknown_fields=True): ...


class _StrictFunction(PastFunction, forbid_unknown_fields=True): ...


class _StrictCall(PastToolCall, forbid_unknown_fields=True):
    function: _StrictFunction | None = None


class _StrictMessage(_RawMessage, forbid_unknown_fields=True): ...


_list = msgspec.json.Decoder(list[Raw])
_string = msgspec.json.Decoder(str)
_message, _strict_message = msgspec.json.Decoder(_RawMessage), msgspec.json.Decoder(_StrictMessage)
_part, _strict_part = msgspec.json.Decoder(Part), msgspec.json.Decoder(_StrictPart)
_call, _strict_call = msgspec.json.Decoder(PastToolCall), msgspec.json.Decoder(_StrictCall)


@dataclass(frozen=True, slots=True, repr=False)
class Messages:
    """Parsed messages, with the JSON of each and of all. Never changed, since several calls may use them.

    All of them refer to the bytes that the client sent, of which there is one copy."""

    parsed: list[Message]
    raw: list[Raw]
    # The JSON of all, in pieces, if the client's own is part of it; empty: it is written from `raw`.
    _given: tuple[bytes | memoryview, ...] = ()

    @property
    def json(self) -> bytes:
        return b"".join(self.json_pieces)

    @property
    def json_pieces(self) -> Sequence[bytes | memoryview | Raw]:
        """The JSON of all, to be joined with what is around it."""
        if self._given:
            return self._given
        pieces: list[bytes | Raw] = [b","] * (2 * len(self.raw) + 1)
        pieces[1::2] = self.raw
        pieces[0], pieces[-1] = b"[", b"]"
        return pieces

    def insert(self, index: int, message: Message) -> "Messages":
        """Returns a copy with another message. Those after a first one keep their bytes and spaces."""
        parsed, raw = self.parsed.copy(), self.raw.copy()
        parsed.insert(index, message)
        raw.insert(index, encode(message))
        if index or not self._given:
            return Messages(parsed, raw)
        first, *others = self._given
        begin = bytes(first).index(b"[") + 1
        return Messages(parsed, raw, (b"[" + raw[0] + b",", memoryview(first)[begin:], *others))

    def insert_guidance(self, text: str) -> "Messages":
        """Returns a copy with a system message after the leading ones, so that caches find the same beginning."""
        roles = (message.role for message in self.parsed)
        at = next((index for index, role in enumerate(roles) if role != "system"), len(self.parsed))
        return self.insert(at, Message(role="system", content=encode_string(text)))

    def replace(self, changed: Mapping[int, Message]) -> "Messages":
        """Returns a copy with other messages at these indices; the same object if there are none."""
        if not changed:
            return self
        parsed, raw = self.parsed.copy(), self.raw.copy()
        for index, message in changed.items():
            parsed[index], raw[index] = message, encode(message)
        return Messages(parsed, raw)

    def append(self, messages: list[Message]) -> "Messages":
        """Returns a copy with more messages at its end."""
        return Messages(self.parsed + messages, self.raw + [encode(message) for message in messages])


async def object_bytes(messages: Messages) -> int:
    """Estimates the memory of parsed messages besides their JSON, which may be many times as much: a message of a few
    bytes is an object too, and a name is text of up to four bytes a character."""
    yielder = Yielder(SLICE_BYTES)
    total_bytes = 0
    for message in messages.parsed:
        items = 1 + len(message.calls) + (len(message.content) if isinstance(message.content, list) else 0)
        names = [message.name, message.tool_call_id]
        for call in message.calls:
            names += (call.id, None if call.function is None else call.function.name)
        total_bytes += items * BYTES_PER_OBJECT + sum(sys.getsizeof(name) for name in names if name)
        await yielder.spend(items * BYTES_PER_ITEM)
    return total_bytes


def encode(message: Message) -> Raw:
    return Raw(msgspec.json.encode(message))


def decode_string(string_json: Raw) -> str:
    return _string.decode(string_json)


def encode_string(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))


async def read_messages(
    messages_json: bytes, first: Message | None = None, *, slice_bytes: int = SLICE_BYTES
) -> Messages:
    """Parses the messages one by one, yielding to the event loop: there may be a hundred thousand, or a long one. Puts
    `first` before them."""
    try:
        messages = await _read(messages_json, Yielder(slice_bytes))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise unreadable() from None
    return messages if first is None else messages.insert(0, first)


def unreadable() -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, "The messages could not be read.", param="messages")


async def _read(messages_json: bytes, yielder: Yielder) -> Messages:
    raw_messages = _list.decode(messages_json)
    await yielder.spend(len(messages_json))
    parsed: list[Message] = []
    were_rewritten = False
    for index, raw_message in enumerate(raw_messages):
        message = _read_plain(raw_message)
        is_same = message is not None
        if message is None:
            message, is_same = await _read_any(raw_message, yielder)
        if message.role == "developer":
            # All providers accept `system`.
            message.role, is_same = "system", False
        if not is_same:
            raw_messages[index] = encode(message)
            were_rewritten = True
        parsed.append(message)
        await yielder.spend(len(memoryview(raw_message)))
    return Messages(parsed, raw_messages, () if were_rewritten else (messages_json,))


def _read_plain(raw_message: Raw) -> Message | None:
    """Decodes a message that has only a role and a text, as most have; returns None for any other."""
    try:
        message = _strict_message.decode(raw_message)
    except msgspec.ValidationError:
        return None
    content = memoryview(message.content)
    if not content or content[0] != _QUOTE:
        return None
    # Any other field takes more than the spaces.
    if len(memoryview(raw_message)) > _PLAIN_BYTES + len(message.role) + len(content):
        return None
    plain: Any = message
    return plain  # type: ignore[no-any-return]


async def _read_any(raw_message: Raw, yielder: Yielder) -> tuple[Message, bool]:
    """Decodes any message, and returns whether it has only known fields."""
    message, is_same = _decode(raw_message, _strict_message, _message, _MESSAGE_VALUES)
    _check_string(message.refusal)
    # Parts and calls are replaced in place.
    parsed = cast(Message, message)
    if message.content is not ABSENT and message.content != NULL:
        if memoryview(message.content)[0] == _BRACKET:
            parsed.content, is_known = await _read_items(message.content, _read_part, yielder)
            is_same = is_same and is_known
        else:
            _check_string(message.content)
    if message.tool_calls is not ABSENT:
        parsed.tool_calls, is_known = await _read_items(message.tool_calls, _read_call, yielder)
        is_same = is_same and is_known
    return parsed, is_same


async def _read_items(
    raw_list: Raw, read: Callable[[Raw], tuple[_Item, bool]], yielder: Yielder
) -> tuple[list[_Item], bool]:
    items, is_same = [], True
    for raw_item in _list.decode(raw_list):
        item, is_known = read(raw_item)
        items.append(item)
        is_same = is_same and is_known
        await yielder.spend(len(memoryview(raw_item)) + BYTES_PER_ITEM)
    return items, is_same


def _read_part(raw_part: Raw) -> tuple[Part, bool]:
    part, is_same = _decode(raw_part, _strict_part, _part, _PART_VALUES)
    _check_string(part.text)
    return part, is_same


def _read_call(raw_call: Raw) -> tuple[PastToolCall, bool]:
    call, is_same = _decode(raw_call, _strict_call, _call, _CALL_VALUES)
    if call.function is not None:
        if call.function.arguments in _NOTHING:
            call.function.arguments, is_same = ABSENT, False
        _check_string(call.function.arguments)
    return call, is_same


def _decode(
    raw_object: Raw, strict: msgspec.json.Decoder[Any], lenient: msgspec.json.Decoder[_Item], values: tuple[str, ...]
) -> tuple[_Item, bool]:
    """Decodes an object, and returns whether it has only known fields; `values` are those that may be any JSON."""
    try:
        decoded, is_same = strict.decode(raw_object), True
    except msgspec.ValidationError:
        decoded, is_same = lenient.decode(raw_object), False
    for name in values:
        if getattr(decoded, name) in _NOTHING:
            setattr(decoded, name, ABSENT)
            is_same = False
    return decoded, is_same and _is_all_of(raw_object, decoded)


def _is_all_of(raw_object: Raw, decoded: Struct) -> bool:
    """Returns whether an object has only these fields, by its size. Detects fields that are null or twice in it, since
    servers differ in which of two they read."""
    fields = _count_fields(decoded)
    if isinstance(decoded, PastToolCall) and decoded.function is not None:
        fields += _count_fields(decoded.function)
    # One space after each colon and comma.
    return len(memoryview(raw_object)) < len(msgspec.json.encode(decoded)) + 2 * fields


def _count_fields(decoded: Struct) -> int:
    return sum(value is not ABSENT and value is not None for value in msgspec.structs.astuple(decoded))


def _check_string(value: Raw) -> None:
    if value is not ABSENT and memoryview(value)[0] != _QUOTE:
        raise msgspec.ValidationError("Expected a string")
