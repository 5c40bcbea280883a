"""Words in one form."""

import pytest

from services.router.grounding.words import words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The CATS, a cat's cats!", ["cat", "cat", "cat"]),
        ("Café cafe\u0301 CAFE", ["cafe", "cafe", "cafe"]),
        ("What is the price of berries in 2026?", ["price", "berry", "2026"]),
        ("Straße STRASSE", ["strasse", "strasse"]),
        ("glass bus analysis", ["glass", "bus", "analysis"]),
        ("snake_case and x", ["snake", "case"]),
        ("\u6771\u4eac\u90fd", ["\u6771\u4eac", "\u4eac\u90fd"]),
        ("Hello, how are you?", []),
    ],
)
def test_text_is_taken_apart_into_words_that_say_something(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words


def test_word_that_never_ends_is_cut() -> None:
    assert [len(word) for word in words_of("x" * 10_000)] == [64]
