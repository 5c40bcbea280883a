"""Converts content for servers that accept only strings: DeepSeek rejects lists, Ollama splits them into messages.

The client may send either form, and many frameworks prefer lists.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from services.router.providers.translation.conversion import ConversionYielder
from services.router.schema.messages import ABSENT, Messages, Part, decode_string, encode_string

_EMPTY = encode_string("")


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
