"""Ids of tool calls for Mistral's models, which take nine letters and digits and nothing else.

The client has them in the one form in which all calls leave us, or from another provider altogether.
"""

import hashlib
import re
import string

import msgspec
from msgspec import Raw

SHORT_CHARACTERS = 9

_SHORT_ID = re.compile(rf"[a-zA-Z0-9]{{{SHORT_CHARACTERS}}}")
_ALPHABET = string.ascii_letters + string.digits

_messages = msgspec.json.Decoder(list[dict[str, Raw]])
_calls = msgspec.json.Decoder(list[dict[str, Raw]] | None)
_text = msgspec.json.Decoder(str | None)
_NULL = Raw(b"null")


def shorten_call_ids(messages_json: bytes) -> bytes:
    """The same messages; all fields but those ids stay as they are."""
    if b'"tool_call' not in messages_json:
        return messages_json
    try:
        messages = _messages.decode(messages_json)
        for message in messages:
            _shorten_ids_of(message)
    except (msgspec.DecodeError, RecursionError):
        # What has another form than calls have is for the provider to judge.
        return messages_json
    return msgspec.json.encode(messages)


def _shorten_ids_of(message: dict[str, Raw]) -> None:
    """Of one who calls, or says what came of it; on the messages of others such fields mean nothing."""
    role = _text.decode(message.get("role", _NULL))
    if role == "tool":
        _shorten(message, "tool_call_id")
    elif role == "assistant":
        calls = _calls.decode(message.get("tool_calls", _NULL))
        for call in calls or ():
            _shorten(call, "id")
        if calls:
            message["tool_calls"] = Raw(msgspec.json.encode(calls))


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
