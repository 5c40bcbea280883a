"""What clients send back of earlier answers, without what is no part of a conversation.

They keep an answer as an object and send all of it back: null for every field that it did not have, its citations, and
what they read out of its text. OpenAI passes over that; others refuse a message for one field they do not know, and
with it the rest of the conversation.
"""

from collections.abc import Callable, Collection

import msgspec
from msgspec import Raw

from services.chassis.turns import Turns
from services.router.json_text import is_list

_NOTHING = (Raw(b"null"), Raw(b"[]"))
# For who reads an answer: our citations, and what OpenAI's clients add to a message, its parts and its calls.
_OF_MESSAGES = frozenset(("annotations", "parsed"))
_OF_PARTS = frozenset(("annotations", "role"))
_OF_CALLS = frozenset(("index",))
_OF_FUNCTIONS = frozenset(("parsed_arguments",))


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


_Fields = dict[str, Raw]
_plain_part = msgspec.json.Decoder(_PlainPart)
_plain_call = msgspec.json.Decoder(_PlainCall)
_fields = msgspec.json.Decoder(_Fields)
_list = msgspec.json.Decoder(list[Raw])


async def without_echoes(raw_message: Raw, turns: Turns) -> Raw:
    """The very same, where nothing is left out. Null content stays, as that of one who only calls."""
    message = _fields.decode(raw_message)
    told = _without(message, _OF_MESSAGES)
    for name, tell in (("content", _part_without_echoes), ("tool_calls", _call_without_echoes)):
        if name in told and is_list(told[name]):
            told_list = await _each_without_echoes(told[name], tell, turns)
            if told_list is not told[name]:
                told = {**told, name: told_list}
    return raw_message if told is message else _encoded(told)


async def _each_without_echoes(raw_list: Raw, tell: Callable[[Raw], Raw], turns: Turns) -> Raw:
    items = _list.decode(raw_list)
    were_rewritten = False
    for index, raw_item in enumerate(items):
        items[index] = tell(raw_item)
        were_rewritten |= items[index] is not raw_item
        if turns.are_due(len(memoryview(raw_item))):
            await turns.rest()
    return _encoded(items) if were_rewritten else raw_list


def _part_without_echoes(raw_part: Raw) -> Raw:
    try:
        _plain_part.decode(raw_part)
    except msgspec.ValidationError:
        return _encoded(_without(_fields.decode(raw_part), _OF_PARTS))
    return raw_part


def _call_without_echoes(raw_call: Raw) -> Raw:
    try:
        _plain_call.decode(raw_call)
    except msgspec.ValidationError:
        call = _without(_fields.decode(raw_call), _OF_CALLS)
        if "function" in call:
            function = _without(_fields.decode(call["function"]), _OF_FUNCTIONS)
            call = {**call, "function": _encoded(function)}
        return _encoded(call)
    return raw_call


def _without(fields: _Fields, names: Collection[str]) -> _Fields:
    kept = {
        name: value
        for name, value in fields.items()
        if name == "content" or (value not in _NOTHING and name not in names)
    }
    return fields if len(kept) == len(fields) else kept


def _encoded(told: _Fields | list[Raw]) -> Raw:
    return Raw(msgspec.json.encode(told))
