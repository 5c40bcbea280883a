"""Rewrites messages for servers that accept less than OpenAI does.

Mistral's models accept only nine letters and digits as the id of a tool call; the client has ids in our canonical form,
or from another provider. DeepSeek rejects lists as content, and Ollama splits them into messages; the client may send
either form, and many frameworks prefer lists.
"""

import hashlib
import re
import string
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from services.router.providers.translation.conversion import BYTES_PER_ELEMENT, ConversionYielder
from services.router.schema.messages import ABSENT, Messages, Part, PastToolCall, decode_string, encode_string

SHORT_CHARACTERS = 9

_SHORT_ID = re.compile(rf"[a-zA-Z0-9]{{{SHORT_CHARACTERS}}}")
_ALPHABET = string.ascii_letters + string.digits
_EMPTY = encode_string("")


async def shorten_call_ids(messages: Messages) -> Messages:
    """Returns the messages with shortened ids; the same if they have none. Other fields are unchanged."""
    yielder = ConversionYielder()
    changed = {}
    for index, message in enumerate(messages.parsed):
        if message.role == "tool" and message.tool_call_id is not None:
            changed[index] = msgspec.structs.replace(message, tool_call_id=short_id(message.tool_call_id))
        elif message.role == "assistant" and message.calls:
            changed[index] = msgspec.structs.replace(message, tool_calls=await _shortened(message.calls, yielder))
    return await messages.replace(changed, yielder)


async def _shortened(calls: Sequence[PastToolCall], yielder: ConversionYielder) -> list[PastToolCall]:
    shortened = []
    for call in calls:
        shortened.append(call if call.id is None else msgspec.structs.replace(call, id=short_id(call.id)))
        if yielder.is_due(BYTES_PER_ELEMENT):
            await yielder.pause()
    return shortened


def short_id(call_id: str) -> str:
    """Returns a short id, always the same for the same id."""
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    return "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(SHORT_CHARACTERS))


async def write_as_strings(messages: Messages) -> Messages:
    """Joins lists of parts into strings; returns the same messages if there are none. Other fields are unchanged."""
    yielder = ConversionYielder()
    changed = {}
    for index, message in enumerate(messages.parsed):
        if isinstance(message.content, list):
            changed[index] = msgspec.structs.replace(message, content=await _joined(message.content, yielder))
    return await messages.replace(changed, yielder)


async def _joined(parts: Sequence[Part], yielder: ConversionYielder) -> Raw:
    texts = [part.text for part in parts if part.text is not ABSENT]
    if len(texts) == 1:
        return texts[0]
    decoded = []
    for text in texts:
        decoded.append(decode_string(text))
        if yielder.is_due_after(text):
            await yielder.pause()
    return encode_string("".join(decoded)) if decoded else _EMPTY
