"""Counts tokens, by OpenAI's o200k vocabulary.

For models with another vocabulary that is an estimate, good enough to fit a window and to size a hold; what is charged
in the end is what the provider counted, where it says so.
"""

import importlib.util
from collections.abc import Iterator
from functools import cache
from importlib.machinery import PathFinder
from typing import Any

from services.chassis.timing.yielding import Yielder

# The event loop waits while a slice is counted: about a millisecond for this much.
SLICE_CHARACTERS = 16 * 1024
# What it takes to read a message and to begin with a text, however short, as if it were characters to count.
CHARACTERS_PER_TEXT = 32

LONGEST_WORD_CHARACTERS = 64


def _open_vocabulary() -> Any:
    """Opens the tokenizer's extension module by itself: its package would first read every vocabulary that it has into
    Python objects, which takes a second and as much memory again."""
    package = importlib.util.find_spec("bpe_openai")
    spec = package and PathFinder.find_spec("bpe_openai._bindings", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        raise ImportError("bpe-openai is not installed")
    bindings = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bindings)
    return bindings.tokenizer_for_encoding("o200k_base")


_vocabulary = _open_vocabulary()


def count(text: str) -> int:
    """For texts that are surely short: a piece of an answer."""
    return int(_vocabulary.count(text))


class RunningCount:
    """Counts a text that comes in pieces as if it had come whole, wherever the network happened to cut it.

    No token reaches over the space that begins a word, so what stands before the last of those is counted for good,
    and only the word after it is counted anew when more of it comes."""

    __slots__ = ("_settled", "_word", "_word_tokens")

    def __init__(self) -> None:
        self._settled = 0
        self._word = ""
        self._word_tokens = 0

    @property
    def tokens(self) -> int:
        return self._settled + self._word_tokens

    def add(self, piece: str) -> int:
        """By how much the count is larger with it."""
        before = self._settled + self._word_tokens
        text = self._word + piece
        begin = _last_word(text)
        if begin:
            is_counted = begin == len(self._word)
            self._settled += self._word_tokens if is_counted else count(text[:begin])
        self._word = text[begin:]
        self._word_tokens = count(self._word)
        return self._settled + self._word_tokens - before

    def copy(self) -> "RunningCount":
        other = RunningCount()
        other._settled, other._word, other._word_tokens = self._settled, self._word, self._word_tokens
        return other


def _last_word(text: str) -> int:
    """Where the last word begins, with its space; text without spaces is taken for words of a bounded length."""
    at = text.rfind(" ")
    while at > 0 and text[at - 1].isspace():
        at = text.rfind(" ", 0, at)
    at = max(at, 0)
    return len(text) if len(text) - at > LONGEST_WORD_CHARACTERS else at


class PatientCount:
    """Counts slices, one after the other, and says when others should have their turn:

    for piece in slices_of(text):
        if counted.add(piece):
            await counted.pause()
    """

    __slots__ = ("_yielder", "pause", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self._yielder = Yielder(SLICE_CHARACTERS)
        self.pause = self._yielder.pause

    def add(self, piece: str) -> bool:
        if piece:
            self.tokens += count(piece)
        return self._yielder.is_due(len(piece) + CHARACTERS_PER_TEXT)


def slices_of(text: str) -> Iterator[str]:
    """A cut between two of them may cost a token more."""
    if len(text) <= SLICE_CHARACTERS:
        yield text
        return
    for start in range(0, len(text), SLICE_CHARACTERS):
        yield text[start : start + SLICE_CHARACTERS]


@cache
def count_once(text: str) -> int:
    """For the few texts that stand in every prompt."""
    return count(text)
