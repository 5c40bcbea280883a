"""Counts texts word by word, and remembers words: docs/decisions/0137-texts-and-words-are-counted-once.md.

Where there was no compiler, the tokenizer counts everything, every time.
"""

from collections.abc import Callable

__all__ = ["WordCounts"]


class PythonWordCounts:
    """Remembers nothing."""

    def __init__(self, count: Callable[[str], int], _key: bytes) -> None:
        self.count = count


try:
    from services.router.native import WordCounts
except ImportError:
    WordCounts = PythonWordCounts  # type: ignore[assignment,misc]
