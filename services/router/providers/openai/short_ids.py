"""Ids of tool calls for Mistral's models, which take nine letters and digits and nothing else.

The client has them in the one form in which all calls leave us, or from another provider altogether.
"""

import hashlib
import re
import string

import msgspec
from msgspec import Raw

from services.router.providers.translation.conversion import ConversionYielder, read_list

SHORT_CHARACTERS = 9

_SHORT_ID = re.compile(rf"[a-zA-Z0-9]{{{SHORT_CHARACTERS}}}")
_ALPHABET = string.ascii_letters + string.digits

_fields = msgspec.json.Decoder(dict[str, Raw])
_calls = msgspec.json.Decoder(list[Raw] | None)
_text = msgspec.json.Decoder(str | None)
_NULL = Raw(b"null")


async def shorten_call_ids(messages_json: bytes) -> bytes:
    """The same messages; all fields but those ids stay as they are."""
    if b'"tool_call' not in messages_json:
        return messages_json
    yielder = ConversionYielder()
    try:
        messages = await read_list(messages_json, yielder)
        for index, raw_message in enumerate(messages):
            messages[index] = await _with_short_ids(raw_message, yielder)
            if yielder.is_due_after(raw_message):
                await yielder.pause()
    except (msgspec.DecodeError, RecursionError):
        # What has another form than calls have is for the provider to judge.
        return messages_json
    return b"[" + b",".join(messages) + b"]"


async def _with_short_ids(raw_message: Raw, yielder: ConversionYielder) -> Raw:
    """Of one who calls, or says what came of it; on the messages of others such fields mean nothing."""
    message = _fields.decode(raw_message)
    role = _text.decode(message.get("role", _NULL))
    if role == "tool":
        _shorten(message, "tool_call_id")
    elif role == "assistant" and (calls := _calls.decode(message.get("tool_calls", _NULL))):
        for index, raw_call in enumerate(calls):
            call = _fields.decode(raw_call)
            _shorten(call, "id")
            calls[index] = Raw(msgspec.json.encode(call))
            if yielder.is_due_after(raw_call):
                await yielder.pause()
        message["tool_calls"] = Raw(msgspec.json.encode(calls))
    else:
        return raw_message
    return Raw(msgspec.json.encode(message))


def _shorten(fields: dict[str, Raw], name: str) -> None:
    call_id = _text.decode(fields.get(name, _NULL))
    if call_id is not None:
        fields[name] = Raw(msgspec.json.encode(short_id(call_id)))


def short_id(call_id: str) -> str:
    """What stands for the id, the same every time."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    return "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(SHORT_CHARACTERS))
