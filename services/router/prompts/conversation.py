"""Recognises the turns of one conversation by how it begins, so that they meet the same prompt cache.

The digest never leaves the router: what a provider may be told of it is derived with a secret.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Raw

from services.router.schema.messages import Message

# Of a longer text only this much of its beginning and of its end is read, and its length.
END_BYTES: Final = 32 * 1024


def digest_conversation(account_id: str, messages: Iterable[Message]) -> bytes:
    """Returns what every turn of a conversation has in common: its account, and of the client's messages the leading
    system messages and the first of the user. Only their texts count, since clients move cache marks between turns."""
    digest = hashlib.sha256(account_id.encode())
    for message in _opener(messages):
        texts = message.texts
        digest.update(b"\n%s %d" % (message.role.encode(), len(texts)))
        for text in texts:
            digest.update(_excerpt(text))
    return digest.digest()


def digest_cache_key(account_id: str, key_digest: bytes) -> bytes:
    """Returns what stands for a client's own `prompt_cache_key`: no two accounts share it."""
    return hashlib.sha256(b"%b\nkey %b" % (account_id.encode(), key_digest)).digest()


def _opener(messages: Iterable[Message]) -> Iterator[Message]:
    is_leading = True
    for message in messages:
        if message.role == "user":
            yield message
            return
        is_leading = is_leading and message.role == "system"
        if is_leading:
            yield message


def _excerpt(text: Raw) -> bytes:
    text_json = memoryview(text)
    size_bytes = len(text_json)
    ends = (text_json,) if size_bytes <= 2 * END_BYTES else (text_json[:END_BYTES], text_json[-END_BYTES:])
    return b"\n%d " % size_bytes + b"".join(ends)
