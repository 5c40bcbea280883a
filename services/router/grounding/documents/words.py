"""Finds the words by which texts are compared: those of notes, of passages, and of a question."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice
from typing import Final

from services.router.schema.messages import Messages, decode_string

LONGEST_WORD: Final = 64

# Scripts without spaces between words: Thai, Lao, Burmese, Khmer, Japanese and Chinese.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
)
# Vowels in Indic scripts are combining marks, which belong to the word.
_INDIAN: Final = "\u0900-\u0963\u0966-\u0dff"
# A change of script separates words, even without a space.
_RUNS: Final = re.compile(rf"[{_UNSPACED}]+|(?:[^\W_{_UNSPACED}]|[{_INDIAN}])+")
_UNSPACED_RUN: Final = re.compile(f"[{_UNSPACED}]")
# Soft hyphens, joiners and elongation marks inside words are ignored.
_PASSED_OVER: Final = frozenset("\u00ad\u0640\u200b\u200c\u200d\u2060\ufeff")

# Stop words.
_EMPTY_WORDS: Final = frozenset(
    _RUNS.findall("""
    a about all also am an and any are as at be been but by can could did do does for from had has have he her him his
    how i if in into is it its just like me more my no not of on one or our out she should so some tell than that the
    their them then there these they this to up us was we were what when where which who why will with would you your
    hello hi hey please thanks thank yes ok okay
    """)
)

# Earlier questions give context to the last one, such as what "it" means.
MESSAGES_MOST: Final = 3
CHARACTERS_MOST: Final = 4_000
WORDS_MOST: Final = 128
# How many messages are searched for questions; older ones are irrelevant.
LOOKED_AT_MOST: Final = 1_000


def words_of(text: str) -> Iterator[str]:
    """Yields the normalized words in order, without stop words."""
    is_plain = text.isascii()
    for run in _RUNS.findall((text if is_plain else _without_accents(text)).casefold()):
        if not is_plain and _UNSPACED_RUN.match(run):
            # Bigrams approximate words.
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
        elif run not in _EMPTY_WORDS and (len(run) > 1 or run.isdigit()):
            yield _singular(run)[:LONGEST_WORD]


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c) and c not in _PASSED_OVER)


def _singular(word: str) -> str:
    """Strips an English plural; other languages may lose an s, but in texts and questions alike."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]


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
