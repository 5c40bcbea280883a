"""What a conversation is about at its end, in words to look for."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from services.router.grounding.words import words_of

# The last message asks; what was asked before says what "it" means.
MESSAGES_MOST: Final = 3
CHARACTERS_MOST: Final = 4_000
WORDS_MOST: Final = 128
# How far back questions are looked for: what is further away has nothing to do with the last one.
LOOKED_AT_MOST: Final = 1_000


class _Part(msgspec.Struct, gc=False):
    text: str = ""


class _Message(msgspec.Struct, gc=False):
    role: str
    content: str | list[_Part] | None = None


_list = msgspec.json.Decoder(list[msgspec.Raw])
_message = msgspec.json.Decoder(_Message)


def question_words(messages_json: bytes) -> list[str]:
    """Each once, those of the last message first; of a long message those at its end."""
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
