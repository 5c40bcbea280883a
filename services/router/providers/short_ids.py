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


def shorten_call_ids(messages_json: bytes) -> bytes:
    """The same messages; all fields but those ids stay as they are."""
    if b'"tool_call' not in messages_json:
        return messages_json
    messages = _messages.decode(messages_json)
    for message in messages:
        if "tool_call_id" in message:
            message["tool_call_id"] = _shortened(message["tool_call_id"])
        if "tool_calls" in message:
            calls = [{**call, "id": _shortened(call["id"])} for call in _calls.decode(message["tool_calls"]) or ()]
            message["tool_calls"] = Raw(msgspec.json.encode(calls)) if calls else message["tool_calls"]
    return msgspec.json.encode(messages)


def _shortened(id_json: Raw) -> Raw:
    return Raw(msgspec.json.encode(short_id(msgspec.json.decode(id_json, type=str))))


def short_id(call_id: str) -> str:
    """What stands for the id, the same every time."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    return "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(SHORT_CHARACTERS))
