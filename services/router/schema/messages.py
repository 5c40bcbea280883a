"""The messages of a chat: described here, and parsed once for all providers.

Texts stay raw JSON, because providers send them on as they are. Messages that have only a role and a text, as most
have, keep their bytes. Others are written anew, with the known fields alone: clients store an answer as an object and
send all of it back, with null for every missing field, its citations, and what they parsed from its text. OpenAI
ignores that; others reject a message for one unknown field. And the content of an uncounted field would be read by a
model without being charged. Servers also differ in which of two fields of the same name they read.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.timing.yielder import Yielder
from services.router.schema.thoughts import MARK, Thoughts

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

# JSON around the values of a message with a role and a content, with common spaces: any other field takes more than
# those.
_PLAIN_BYTES: Final = len('{"role": "", "content": }')
# Fields that may be any JSON.
_MESSAGE_VALUES: Final = (
    *("tool_calls", "refusal", "reasoning_content", "reasoning", "reasoning_details"),
    *("prefix", "partial", "cache_control"),
)
_PART_VALUES: Final = ("type", "text", "cache_control", "refusal")
_CALL_VALUES: Final = ("type", "extra_content")
_FUNCTION_VALUES: Final = ("arguments",)
_TEXT: Final = Raw(b'"text"')
_QUOTE: Final = ord('"')
_BRACKET: Final = ord("[")


# A prompt may have 100,000 of the structs below. They form no reference cycles, so gc=False spares the collector them.
class Part(Struct, gc=False, omit_defaults=True):
    type: Raw = ABSENT
    # A JSON string.
    text: Raw = ABSENT
    # The client's mark that Anthropic's models may cache the prompt up to here.
    cache_control: Raw = ABSENT
    # What the assistant said in place of an answer: read as the text, which all servers take.
    refusal: Raw = ABSENT


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
    # A list of objects, for OpenRouter.
    reasoning_details: Raw = ABSENT
    # Flags that the last message is the beginning of the answer.
    prefix: Raw = ABSENT
    partial: Raw = ABSENT
    # A mark of the whole message, which is moved to its last part.
    cache_control: Raw = ABSENT

    @property
    def texts(self) -> list[Raw]:
        """The texts of the content, as JSON strings."""
        content = self.content
        if isinstance(content, list):
            return [part.text for part in content if part.text is not ABSENT]
        return [] if content is ABSENT or content == NULL else [cast(Raw, content)]

    @property
    def reasonings(self) -> tuple[Raw, Raw, Raw]:
        return self.reasoning_content, self.reasoning, self.reasoning_details

    @property
    def calls(self) -> Sequence[PastToolCall]:
        return self.tool_calls if isinstance(self.tool_calls, list) else ()


# A parsed message. Without parts, its content is a JSON string, null or absent; without calls, they are absent.
Message = MessageFields[Raw | list[Part], Raw | list[PastToolCall]]
_RawMessage = MessageFields[Raw, Raw]

_list = msgspec.json.Decoder(list[Raw])
_string = msgspec.json.Decoder(str)
_message = msgspec.json.Decoder(_RawMessage)
_part = msgspec.json.Decoder(Part)
_call = msgspec.json.Decoder(PastToolCall)


@dataclass(frozen=True, slots=True, repr=False)
class Messages:
    """Parsed messages. Never changed, since several calls may use them.

    All of them refer to the bytes that the client sent, of which there is one copy."""

    parsed: list[Message]
    # The size of what the client sent.
    size_bytes: int = 0
    # An estimate of the memory besides that, which may be many times as much: a message of a few bytes is an object
    # too, and a name is text of up to four bytes a character.
    object_bytes: int = 0
    # The JSON of all, in pieces, if the client's own is part of it; empty: it is written from `parsed`.
    _given: tuple[bytes | memoryview, ...] = ()
    # How many of them the next turn of the conversation will begin with; None: all. Others were added for this turn.
    lasting: int | None = None
    # A text for this turn alone, as a JSON string, which is sent at the end of the last lasting message.
    context: Raw | None = None
    # What models have thought before, which only those of their families take back.
    thoughts: Thoughts = field(default_factory=dict)
    # Whether ids or fields of the messages still have some of that.
    carries_thoughts: bool = False

    @property
    def json(self) -> bytes:
        return b"".join(self.json_pieces)

    @property
    def json_pieces(self) -> Sequence[bytes | memoryview]:
        """The JSON of all, to be joined with what is around it."""
        given = self._given if self.context is None or self.lasting is None else ()
        return given or (msgspec.json.encode(self.complete),)

    @property
    def complete(self) -> Sequence[Message]:
        """All messages, with the text for this turn alone in its place."""
        if self.context is None or self.lasting is None:
            return self.parsed
        parsed, at = self.parsed.copy(), self.lasting - 1
        parsed[at] = _with_context(parsed[at], self.context)
        return parsed

    @property
    def are_plain(self) -> bool:
        """Returns whether all that the client sent are messages with a role and a text, and no other field."""
        return bool(self._given)

    def insert(self, index: int, message: Message) -> "Messages":
        """Returns a copy with another message. Those after a first one keep their bytes and spaces."""
        parsed, given = self.parsed.copy(), self._given
        parsed.insert(index, message)
        if given and not index:
            begin = bytes(given[0]).index(b"[") + 1
            given = (b"[" + msgspec.json.encode(message) + b",", memoryview(given[0])[begin:], *given[1:])
        lasting = None if self.lasting is None else self.lasting + (index < self.lasting)
        given = () if index else given
        thoughts = self.thoughts
        if thoughts:
            thoughts = {at + (at >= index): carried for at, carried in thoughts.items()}
        return Messages(
            parsed,
            self.size_bytes,
            self.object_bytes,
            given,
            lasting,
            self.context,
            thoughts,
            self.carries_thoughts,
        )

    def insert_guidance(self, text: str) -> "Messages":
        """Returns a copy with a system message after the leading ones, so that caches find the same beginning."""
        roles = (message.role for message in self.parsed)
        at = next((index for index, role in enumerate(roles) if role != "system"), len(self.parsed))
        return self.insert(at, Message(role="system", content=encode_string(text)))

    def add_context(self, text: str) -> "Messages":
        """Returns a copy with a text at the end of the last user message. The next turn has that message without it, so
        all before the text stays a prefix of the conversation, which caches find again."""
        users = (index for index in range(len(self.parsed) - 1, -1, -1) if self.parsed[index].role == "user")
        at = next(users, None)
        if at is None:
            return self.insert_guidance(text)
        return replace(self, lasting=at + 1, context=encode_string(f"\n\n{text}"))

    def replace(self, changed: Mapping[int, Message]) -> "Messages":
        """Returns a copy with other messages at these indices; the same object if there are none."""
        if not changed:
            return self
        parsed = [changed.get(index, message) for index, message in enumerate(self.parsed)]
        return replace(self, parsed=parsed, object_bytes=0, _given=())

    def append(self, messages: list[Message]) -> "Messages":
        """Returns a copy with more messages at its end, which belong to this turn alone."""
        lasting = len(self.parsed) if self.lasting is None else self.lasting
        return replace(self, parsed=self.parsed + messages, object_bytes=0, _given=(), lasting=lasting)


def decode_string(string_json: Raw) -> str:
    return _string.decode(string_json)


def encode_string(text: str) -> Raw:
    return Raw(msgspec.json.encode(text))


def _with_context(message: Message, context: Raw) -> Message:
    """Returns a copy of a message with a text at its end. A string stays one: some servers accept nothing else."""
    content = message.content
    if isinstance(content, list):
        return msgspec.structs.replace(message, content=[*content, Part(type=encode_string("text"), text=context)])
    [text] = message.texts or [encode_string("")]
    return msgspec.structs.replace(message, content=Raw(bytes(text)[:-1] + bytes(context)[1:]))


def join_strings(strings_json: list[Raw]) -> Raw:
    return strings_json[0] if len(strings_json) == 1 else encode_string("".join(map(decode_string, strings_json)))


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
    return LegatoError(Reason.REQUEST_INVALID, Sentence("messages_unreadable"), param="messages")


async def _read(messages_json: bytes, yielder: Yielder) -> Messages:
    raw_messages = _list.decode(messages_json)
    await yielder.spend(len(messages_json))
    parsed: list[Message] = []
    are_plain, object_bytes = True, BYTES_PER_OBJECT * len(raw_messages)
    carries_thoughts = False
    for raw_message in raw_messages:
        raw = _message.decode(raw_message)
        # Parts and calls are replaced in place.
        message = cast(Message, raw)
        content, size_bytes = memoryview(raw.content), len(memoryview(raw_message))
        is_text = bool(content) and content[0] == _QUOTE
        if not is_text or size_bytes > _PLAIN_BYTES + len(raw.role) + len(content):
            are_plain = False
            object_bytes += await _read_fields(raw, message, yielder)
            carries_thoughts = carries_thoughts or _carries_thoughts(message)
        if message.role == "developer":
            # All providers accept `system`.
            message.role, are_plain = "system", False
        parsed.append(message)
        await yielder.spend(size_bytes)
    given = (messages_json,) if are_plain else ()
    return Messages(parsed, len(messages_json), object_bytes, given, carries_thoughts=carries_thoughts)


def _carries_thoughts(message: Message) -> bool:
    if any(given is not ABSENT for given in message.reasonings):
        return True
    if message.tool_call_id is not None:
        return MARK in message.tool_call_id
    return any(MARK in call.id for call in message.calls if call.id is not None)


async def _read_fields(raw: _RawMessage, message: Message, yielder: Yielder) -> int:
    """Reads what a message may have besides a role and a text, and returns about how much memory that takes."""
    _drop_nothing(raw, _MESSAGE_VALUES)
    _check_string(raw.refusal)
    if raw.role != "assistant":
        raw.reasoning_details = ABSENT
    items, names = 0, [raw.name, raw.tool_call_id]
    if raw.content is not ABSENT and raw.content != NULL:
        if memoryview(raw.content)[0] == _BRACKET:
            message.content = await _read_items(raw.content, _read_part, yielder)
            items += len(message.content)
        else:
            _check_string(raw.content)
    if raw.cache_control is not ABSENT:
        items += _mark_last_part(message)
    if raw.tool_calls is not ABSENT:
        message.tool_calls = await _read_items(raw.tool_calls, _read_call, yielder)
        items += len(message.tool_calls)
        for call in message.tool_calls:
            names += (call.id, None if call.function is None else call.function.name)
    return items * BYTES_PER_OBJECT + sum(sys.getsizeof(name) for name in names if name)


def _mark_last_part(message: Message) -> int:
    """Moves the mark of a message to its last part, which has none yet, and returns how many parts were made for it."""
    mark, message.cache_control = message.cache_control, ABSENT
    content = message.content
    if isinstance(content, list):
        if content and content[-1].cache_control is ABSENT:
            content[-1].cache_control = mark
        return 0
    if content is ABSENT or content == NULL:
        return 0
    message.content = [Part(type=_TEXT, text=content, cache_control=mark)]
    return 1


async def _read_items(raw_list: Raw, read: Callable[[Raw], _Item], yielder: Yielder) -> list[_Item]:
    items = []
    for raw_item in _list.decode(raw_list):
        items.append(read(raw_item))
        await yielder.spend(len(memoryview(raw_item)) + BYTES_PER_ITEM)
    return items


def _read_part(raw_part: Raw) -> Part:
    part = _part.decode(raw_part)
    _drop_nothing(part, _PART_VALUES)
    if part.refusal is not ABSENT and part.text is ABSENT:
        part.type, part.text = _TEXT, part.refusal
    part.refusal = ABSENT
    _check_string(part.text)
    return part


def _read_call(raw_call: Raw) -> PastToolCall:
    call = _call.decode(raw_call)
    _drop_nothing(call, _CALL_VALUES)
    if call.function is not None:
        _drop_nothing(call.function, _FUNCTION_VALUES)
        _check_string(call.function.arguments)
    return call


def _drop_nothing(decoded: Struct, names: tuple[str, ...]) -> None:
    """Makes fields absent that have a value which stands for a missing one."""
    for name in names:
        if getattr(decoded, name) in _NOTHING:
            setattr(decoded, name, ABSENT)


def _check_string(value: Raw) -> None:
    if value is not ABSENT and memoryview(value)[0] != _QUOTE:
        raise msgspec.ValidationError("Expected a string")
