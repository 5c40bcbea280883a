"""Words in one form."""

import msgspec
import pytest

from services.router.grounding.documents.words import LOOKED_AT_MOST, WORDS_MOST, question_words, words_of
from tests.services.router.schema.reading import parsed


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
        ("\u4f7f\u7528Docker\u90e8\u7f72", ["\u4f7f\u7528", "docker", "\u90e8\u7f72"]),
        ("iPhone\u624b\u673a 2026\u5e74", ["iphone", "\u624b\u673a", "2026", "\u5e74"]),
        # Hindi: water.
        ("\u092a\u093e\u0928\u0940", ["\u092a\u093e\u0928\u0940"]),
        # Tamil: water.
        ("\u0ba4\u0ba3\u0bcd\u0ba3\u0bc0\u0bb0\u0bcd", ["\u0ba4\u0ba3\u0ba3\u0bc0\u0bb0"]),
        # Thai: station.
        ("\u0e2a\u0e16\u0e32\u0e19\u0e35", ["\u0e2a\u0e16", "\u0e16\u0e32", "\u0e32\u0e19", "\u0e19\u0e35"]),
        ("Donau\u00addampf", ["donaudampf"]),
        # Persian, with the sign that keeps letters apart; Arabic, drawn out.
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", ["\u0645\u06cc\u062e\u0648\u0627\u0647\u0645"]),
        ("\u0643\u062a\u0640\u0640\u0627\u0628", ["\u0643\u062a\u0627\u0628"]),
    ],
)
def test_text_is_taken_apart_into_words_that_say_something(text: str, words: list[str]) -> None:
    assert list(words_of(text)) == words


def test_word_that_never_ends_is_cut() -> None:
    assert [len(word) for word in words_of("x" * 10_000)] == [64]


def words(*messages: tuple[str, object]) -> list[str]:
    return question_words(
        parsed(msgspec.json.encode([{"role": role, "content": content} for role, content in messages]))
    )


def test_last_question_comes_first_and_earlier_ones_follow() -> None:
    asked = words(
        ("system", "pirate"), ("user", "My pump leaks."), ("assistant", "Which valve?"), ("user", "The red one.")
    )
    assert asked == ["red", "pump", "leak"]


def test_only_the_last_three_questions_count() -> None:
    assert words(*(("user", f"word{number}") for number in range(5))) == ["word4", "word3", "word2"]


def test_parts_are_read_and_other_contents_passed_over() -> None:
    parts = [{"type": "text", "text": "red"}, {"type": "text", "text": "pump"}]
    assert words(("user", parts), ("assistant", None)) == ["red", "pump"]
    assert words(("user", "")) == []


def test_long_question_counts_by_its_end() -> None:
    asked = words(("user", " ".join(f"w{number}" for number in range(10_000))))
    assert asked == [f"w{number}" for number in range(10_000 - WORDS_MOST, 10_000)]


def test_what_is_asked_behind_a_long_text_is_asked_even_if_the_text_has_the_words() -> None:
    text = "pump " + " ".join(f"w{number}" for number in range(WORDS_MOST))
    assert words(("user", "My valve leaks."), ("user", f"{text}. Which pump is it?"))[-1] == "pump"


def test_questions_are_not_looked_for_in_all_of_a_long_conversation() -> None:
    answers = [("assistant", "An answer.")] * LOOKED_AT_MOST
    assert words(("user", "pump"), *answers) == []
    assert words(("user", "pump"), *answers[1:]) == ["pump"]
