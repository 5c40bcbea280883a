"""The words of a text in one form, so that a question finds what it asks about however that is written."""

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

LONGEST_WORD: Final = 64

_RUNS: Final = re.compile(r"[^\W_]+")
# Scripts that put no spaces between words: Chinese and Japanese.
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")

# They stand in every text, and say nothing of what it is about.
_EMPTY_WORDS: Final = frozenset(
    _RUNS.findall("""
    a about all also am an and any are as at be been but by can could did do does for from had has have he her him his
    how i if in into is it its just like me more my no not of on one or our out she should so some tell than that the
    their them then there these they this to up us was we were what when where which who why will with would you your
    hello hi hey please thanks thank yes ok okay
    """)
)


def words_of(text: str) -> Iterator[str]:
    """In their order, those left out that say nothing."""
    is_plain = text.isascii()
    for run in _RUNS.findall((text if is_plain else _without_accents(text)).casefold()):
        if not is_plain and _UNSPACED.match(run):
            # Two characters are about a word.
            yield from (run[at : at + 2] for at in range(max(1, len(run) - 1)))
        elif run not in _EMPTY_WORDS and (len(run) > 1 or run.isdigit()):
            yield _singular(run)[:LONGEST_WORD]


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))


def _singular(word: str) -> str:
    """Of English; words of other languages may lose an s, in texts and in questions alike."""
    if len(word) < 4 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]
