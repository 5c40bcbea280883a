"""Extracts search words from the end of a conversation."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from services.router.grounding.words import words_of
from services.router.schema.messages import Messages, decode_string

# Earlier questions give context to the last one, such as what "it" means.
MESSAGES_MOST: Final = 3
CHARACTERS_MOST: Final = 4_000
WORDS_MOST: Final = 128
# How many messages are searched for questions; older ones are irrelevant.
LOOKED_AT_MOST: Final = 1_000


def question_words(messages: Messages) -> list[str]:
    """Returns distinct words, those of the last message first; of a long message those at its end."""
    words: dict[str, None] = {}
    for text in _last_questions(messages):
        from_its_end = dict.fromkeys(reversed(list(words_of(text[-CHARACTERS_MOST:]))))
        new_words = [word for word in from_its_end if word not in words][: WORDS_MOST - len(words)]
        words.update(dict.fromkeys(reversed(new_words)))
    return list(words)


def _last_questions(messages: Messages) -> Iterator[str]:
    left = MESSAGES_MOST
    for message in islice(reversed(messages.parsed), LOOKED_AT_MOST):
        if message.role != "user":
            continue
        yield " ".join(map(decode_string, message.texts))
        left -= 1
        if not left:
            return
