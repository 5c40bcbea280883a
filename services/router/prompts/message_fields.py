"""What goes upstream of a message: the fields that are known here, and so are counted.

Clients keep an answer as an object and send all of it back: null for every field that it did not have, its citations,
and what they read out of its text. OpenAI passes over that; others refuse a message for one field they do not know. And
whatever stands in a field that nobody has counted would be read by a model for nothing.
"""

from collections.abc import Callable, Collection
from typing import Any

import msgspec
from msgspec import Raw

from services.chassis.timing.yielding import Yielder
from services.router.prompts.json_text import is_list

# What it takes to look at a part or a call, however short, as if it were bytes to read.
BYTES_PER_ITEM = 256

_NOTHING = (Raw(b"null"), Raw(b"[]"))

# Beside OpenAI's own fields: what models thought, which some want back with their calls, and that the last message is
# the beginning of the answer.
_OF_MESSAGES = frozenset(
    (
        *("role", "content", "name", "tool_calls", "tool_call_id", "refusal"),
        *("reasoning_content", "reasoning", "prefix", "partial"),
    )
)
# What is to be cached, for Anthropic's models behind servers that speak as OpenAI does.
_OF_PARTS = frozenset(("type", "text", "cache_control"))
# What Google's models give along with a call for themselves.
_OF_CALLS = frozenset(("id", "type", "function", "extra_content"))
_OF_FUNCTIONS = frozenset(("name", "arguments"))

# What JSON has around the name and the value of a field, and around all of them, with a space where many have one.
_BYTES_PER_FIELD = len('"": , ')
_BYTES_PER_OBJECT = len("{}")


class _PlainPart(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """As most are, like the calls below: nothing of it is left out."""

    type: str
    text: Raw


class _PlainFunction(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: Raw


class _PlainCall(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    id: str
    type: str
    function: _PlainFunction


# In an object of more bytes, fields that are not known are skipped rather than kept: there may be half a million.
_LARGE_BYTES = 64 * 1024

_Fields = dict[str, Raw]
_plain_part = msgspec.json.Decoder(_PlainPart)
_plain_call = msgspec.json.Decoder(_PlainCall)
_fields = msgspec.json.Decoder(_Fields)
_list = msgspec.json.Decoder(list[Raw])


def _skipping_decoders(names: Collection[str]) -> tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]:
    """Two decoders of these fields alone: one that fails where there are others, and one that skips those."""
    fields = [(name, Raw, Raw()) for name in sorted(names)]
    strict = msgspec.defstruct("KnownFields", fields, forbid_unknown_fields=True)
    return msgspec.json.Decoder(strict), msgspec.json.Decoder(msgspec.defstruct("SkippedFields", fields))


_skipping = {names: _skipping_decoders(names) for names in (_OF_MESSAGES, _OF_PARTS, _OF_CALLS, _OF_FUNCTIONS)}


async def with_known_fields(raw_message: Raw, yielder: Yielder) -> Raw:
    """The very same, where nothing is left out. Null content stays, as that of one who only calls."""
    message, is_all = _known(raw_message, _OF_MESSAGES)
    for name, tell in (("content", _known_part), ("tool_calls", _known_call)):
        if name in message and is_list(message[name]):
            told_list = await _each(message[name], tell, yielder)
            if told_list is not message[name]:
                message[name], is_all = told_list, False
    return raw_message if is_all else _encoded(message)


def _is_all_of(raw_object: Raw, *fields: tuple[str, int]) -> bool:
    """Whether an object has nothing beside these fields, of which each is given by its name and the bytes of its value.
    A field may stand in it twice, and servers differ in which of the two they read."""
    known_bytes = sum(len(name) + value_bytes + _BYTES_PER_FIELD for name, value_bytes in fields)
    return len(memoryview(raw_object)) <= known_bytes + _BYTES_PER_OBJECT


async def _each(raw_list: Raw, tell: Callable[[Raw], Raw], yielder: Yielder) -> Raw:
    items = _list.decode(raw_list)
    were_rewritten = False
    for index, raw_item in enumerate(items):
        items[index] = tell(raw_item)
        were_rewritten |= items[index] is not raw_item
        if yielder.is_due(len(memoryview(raw_item)) + BYTES_PER_ITEM):
            await yielder.pause()
    return _encoded(items) if were_rewritten else raw_list


def _known_part(raw_part: Raw) -> Raw:
    try:
        part = _plain_part.decode(raw_part)
    except msgspec.ValidationError:
        pass
    else:
        if _is_all_of(raw_part, ("type", _bytes(part.type)), ("text", _bytes(part.text))):
            return raw_part
    told, is_all = _known(raw_part, _OF_PARTS)
    return raw_part if is_all else _encoded(told)


def _known_call(raw_call: Raw) -> Raw:
    try:
        call = _plain_call.decode(raw_call)
    except msgspec.ValidationError:
        pass
    else:
        function = call.function
        fields = ("name", _bytes(function.name)), ("arguments", _bytes(function.arguments)), ("function", 2)
        if _is_all_of(raw_call, ("id", _bytes(call.id)), ("type", _bytes(call.type)), *fields):
            return raw_call
    told, _ = _known(raw_call, _OF_CALLS)
    if "function" in told:
        told["function"] = _encoded(_known(told["function"], _OF_FUNCTIONS)[0])
    return _encoded(told)


def _known(raw_object: Raw, names: frozenset[str]) -> tuple[_Fields, bool]:
    """Gives those of its fields that are known, and whether that is all there is."""
    fields, has_others = _fields_of(raw_object, names)
    known = {
        name: value for name, value in fields.items() if name in names and (name == "content" or value not in _NOTHING)
    }
    is_all = (
        not has_others
        and len(known) == len(fields)
        and _is_all_of(raw_object, *((name, _bytes(known[name])) for name in known))
    )
    return known, is_all


def _fields_of(raw_object: Raw, names: frozenset[str]) -> tuple[_Fields, bool]:
    """Gives its fields, and whether it has others, which were skipped."""
    if len(memoryview(raw_object)) <= _LARGE_BYTES:
        return _fields.decode(raw_object), False
    strict, lenient = _skipping[names]
    try:
        found, has_others = strict.decode(raw_object), False
    except msgspec.ValidationError:
        found, has_others = lenient.decode(raw_object), True
    return {name: value for name in names if (value := getattr(found, name))}, has_others


def _bytes(value: Raw | str) -> int:
    return len(value.encode()) + 2 if isinstance(value, str) else len(memoryview(value))


def _encoded(told: _Fields | list[Raw]) -> Raw:
    return Raw(msgspec.json.encode(told))
