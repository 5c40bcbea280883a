"""What a conversation is about at its end, in words to look for."""

from collections.abc import Iterator
from typing import Final

import msgspec

from services.router.grounding.words import words_of

# The last message asks; what was asked before says what "it" means.
MESSAGES_MOST: Final = 3
CHARACTERS_MOST: Final = 4_000
WORDS_MOST: Final = 64


class _Part(msgspec.Struct, gc=False):
    text: str = ""


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | list[_Part] | None = None


_list = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(_Message)


def question_words(messages_json: bytes) -> list[str]:
    """Each once, those of the last message first."""
    words: dict[str, None] = {}
    for text in _last_questions(messages_json):
        for word in words_of(text[-CHARACTERS_MOST:]):
            words[word] = None
            if len(words) == WORDS_MOST:
                return list(words)
    return list(words)


def _last_questions(messages_json: bytes) -> Iterator[str]:
    left = MESSAGES_MOST
    for raw_message in reversed(_list.decode(messages_json)):
        message = _message.decode(raw_message)
        if message.role != "user":
            continue
        content = message.content or ""
        yield content if isinstance(content, str) else " ".join(part.text for part in content)
        left -= 1
        if not left:
            return
