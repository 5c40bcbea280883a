"""Recognises requests that begin alike, so that they meet the same prompt cache: turns of one conversation, and the
first turns of conversations with the same instructions.

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
        _add_texts(digest, message)
    return digest.digest()


def digest_instructions(account_id: str, messages: Iterable[Message], tools_json: bytes) -> bytes:
    """Returns what the first turns of several conversations have in common: their account, the leading system messages,
    the character included, and the tools. It is empty from the second turn on: a vendor sends only so many requests
    a minute with the same key to one server, so longer conversations have keys of their own."""
    digest = hashlib.sha256(b"first %b" % account_id.encode())
    is_leading = True
    for message in messages:
        if message.role not in ("system", "user"):
            return b""
        is_leading = is_leading and message.role == "system"
        if is_leading:
            _add_texts(digest, message)
    digest.update(b"\ntools" + _excerpt(tools_json))
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


def _add_texts(digest: "hashlib._Hash", message: Message) -> None:
    texts = message.texts
    digest.update(b"\n%s %d" % (message.role.encode(), len(texts)))
    for text in texts:
        digest.update(_excerpt(text))


def _excerpt(text: Raw | bytes) -> bytes:
    text_json = memoryview(text)
    size_bytes = len(text_json)
    ends = (text_json,) if size_bytes <= 2 * END_BYTES else (text_json[:END_BYTES], text_json[-END_BYTES:])
    return b"\n%d " % size_bytes + b"".join(ends)
