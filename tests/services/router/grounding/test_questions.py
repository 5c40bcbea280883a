"""The words that a conversation is about at its end."""

import msgspec

from services.router.grounding.questions import LOOKED_AT_MOST, WORDS_MOST, question_words
from tests.services.router.schema.reading import parsed


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
