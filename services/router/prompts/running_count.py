"""Counts the tokens of a streamed text. The router uses the same in C, where that is compiled."""

import re
from collections.abc import Callable

LONGEST_WORD_CHARACTERS = 64
# Counted again as a whole, however it is composed.
SHORT_WORD_CHARACTERS = 12
# Matches up to the last part of a word, where the tokenizer always splits: between letters and digits, before an
# upper-case letter that follows a lower-case one, and before the punctuation of languages that have no spaces.
_LAST_PART = re.compile(
    r".+(?:(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])|(?<=[a-z])(?=[A-Z])"
    r"|(?<=[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff])(?=[\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]))",
    re.DOTALL,
)


class PythonRunningCount:
    """Counts a streamed text as if it had arrived whole, however it was split.

    No token spans the space that begins a word, so everything before the last such space is final, and only the last
    word is counted again when more arrives. In a long word the same is true of the place before its last part."""

    __slots__ = ("_count", "_settled", "_word_tokens", "word")

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._settled = 0
        # The last word.
        self.word = ""
        self._word_tokens = 0

    @property
    def tokens(self) -> int:
        return self._settled + self._word_tokens

    def add(self, piece: str) -> int:
        """Adds a piece and returns by how much the count grew."""
        before_tokens = self._word_tokens
        text = self.word + piece
        # The start of the last word, with its space; text without spaces is split at a bounded length.
        begin = text.rfind(" ")
        while begin > 0 and text[begin - 1].isspace():
            begin = text.rfind(" ", 0, begin)
        if begin < 0:
            begin = 0
        if len(text) - begin > SHORT_WORD_CHARACTERS:
            # The word before was searched when it became long.
            searched = len(self.word) - 1 if len(self.word) > SHORT_WORD_CHARACTERS else 0
            part = _LAST_PART.match(text, max(begin, searched))
            if part is not None:
                begin = part.end()
            elif len(text) - begin > LONGEST_WORD_CHARACTERS:
                begin = len(text)
        settled_tokens = 0
        if begin:
            settled_tokens = before_tokens if begin == len(self.word) else self._count(text[:begin])
            text = text[begin:]
        word_tokens = self._count(text)
        # Only now, since to count may fail.
        self._settled += settled_tokens
        self.word, self._word_tokens = text, word_tokens
        return settled_tokens + word_tokens - before_tokens

    def copy(self) -> "PythonRunningCount":
        other = PythonRunningCount(self._count)
        other._settled, other.word, other._word_tokens = self._settled, self.word, self._word_tokens
        return other
