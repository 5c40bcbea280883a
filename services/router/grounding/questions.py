"""Extracts search words from the end of a conversation."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from services.router.grounding.words import words_of

# Earlier questions give context to the last one, such as what "it" means.
MESSAGES_MOST: Final = 3
CHARACTERS_MOST: Final = 4_000
WORDS_MOST: Final = 128
# How many messages are searched for questions; older ones are irrelevant.
LOOKED_AT_MOST: Final = 1_000


class _Part(msgspec.Struct, gc=False):
    text: str = ""


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | list[_Part] | None = None


_list = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(_Message)


def question_words(messages_json: bytes) -> list[str]:
    """Returns distinct words, those of the last message first; of a long message those at its end."""
    words: dict[str, None] = {}
    for text in _last_questions(messages_json):
        from_its_end = dict.fromkeys(reversed(list(words_of(text[-CHARACTERS_MOST:]))))
        new_words = [word for word in from_its_end if word not in words][: WORDS_MOST - len(words)]
        words.update(dict.fromkeys(reversed(new_words)))
    return list(words)


def _last_questions(messages_json: bytes) -> Iterator[str]:
    left = MESSAGES_MOST
    for raw_message in islice(reversed(_list.decode(messages_json)), LOOKED_AT_MOST):
        message = _message.decode(raw_message)
        if message.role != "user":
            continue
        content = message.content or ""
        yield content if isinstance(content, str) else " ".join(part.text for part in content)
        left -= 1
        if not left:
            return
