"""Rewrites messages for servers that accept less than OpenAI does.

Mistral's models accept only nine letters and digits as the id of a tool call; the client has ids in our canonical form,
or from another provider. DeepSeek rejects lists as content, and Ollama splits them into messages; the client may send
either form, and many frameworks prefer lists.
"""

import hashlib
import re
import string

import msgspec

from services.router.schema.messages import Messages, PastToolCall, join_strings

SHORT_CHARACTERS = 9

_SHORT_ID = re.compile(rf"[a-zA-Z0-9]{{{SHORT_CHARACTERS}}}")
_ALPHABET = string.ascii_letters + string.digits


def shorten_call_ids(messages: Messages) -> Messages:
    """Returns the messages with shortened ids; the same if they have none. Other fields are unchanged."""
    changed = {}
    for index, message in enumerate(messages.parsed):
        if message.role == "tool" and message.tool_call_id is not None:
            changed[index] = msgspec.structs.replace(message, tool_call_id=short_id(message.tool_call_id))
        elif message.role == "assistant" and message.calls:
            changed[index] = msgspec.structs.replace(message, tool_calls=list(map(_shortened, message.calls)))
    return messages.replace(changed)


def _shortened(call: PastToolCall) -> PastToolCall:
    return call if call.id is None else msgspec.structs.replace(call, id=short_id(call.id))


def short_id(call_id: str) -> str:
    """Returns a short id, always the same for the same id."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    return "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(SHORT_CHARACTERS))


def write_as_strings(messages: Messages) -> Messages:
    """Joins lists of parts into strings; returns the same messages if there are none. Other fields are unchanged."""
    changed = {}
    for index, message in enumerate(messages.parsed):
        if isinstance(message.content, list):
            changed[index] = msgspec.structs.replace(message, content=join_strings(message.texts))
    return messages.replace(changed)
