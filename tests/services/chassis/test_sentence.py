"""Sentences, from ids and figures to words."""

import pytest

from services.chassis.sentence import Sentence, Writers

WRITERS: Writers = {"number": lambda figure: f"<{figure}>", "date": lambda figure: f"[{figure}]"}


def test_it_is_english_for_programs_with_whole_numbers_in_groups_and_dates_as_they_are() -> None:
    assert str(Sentence("note_length", most=4000)) == "A note must have 1 to 4,000 characters."
    assert str(Sentence("notice_low_balance", balance="0.87", threshold="1,000.00")) == (
        "The balance is $0.87, which is below $1,000.00."
    )
    assert str(Sentence("notice_key_expires", key="Chat", day="2026-10-08")) == "The key Chat expires on 2026-10-08."
    # As it was before there were ids: this figure has no groups.
    assert str(Sentence("token_count_range", most=10**9)).endswith("between 0 and 1000000000.")


def test_braces_of_a_figure_or_of_the_words_are_no_placeholders() -> None:
    assert str(Sentence("notice_key_expires", key="{day}", day="2026-10-08")).startswith("The key {day} expires")
    assert str(Sentence("content_part_form")) == "Content parts must be of the form {type: 'text', text: string}."


def test_it_is_written_in_a_language_with_that_languages_figures_and_words() -> None:
    limit = Sentence("key_spend_limit_near", key="daily", period="daily", spent="4.00", limit="1,000.00")
    # The key's name is a word of another place, and stays.
    assert limit.written("fr", WRITERS) == (
        "La clé daily a dépensé <4.00>\N{NO-BREAK SPACE}$ de sa limite de dépenses quotidienne"
        " de <1,000.00>\N{NO-BREAK SPACE}$."
    )
    assert limit.written("en", WRITERS) == "The key daily has spent $<4.00> of its daily spend limit of $<1,000.00>."
    assert Sentence("notice_key_expires", key="Chat", day="2026-10-08").written("en", WRITERS) == (
        "The key Chat expires on [2026-10-08]."
    )
    # A part that has no French name.
    assert str(Sentence("unavailable", what="The new part").written("fr", WRITERS)).startswith("The new part")


@pytest.mark.parametrize(
    "sentence",
    [
        Sentence.received("from_tomorrow", {"most": "1"}, "Tomorrow's words."),
        Sentence.received("note_length", {"most_characters": "1"}, "Tomorrow's words."),
        Sentence.verbatim("Tomorrow's words."),
    ],
)
def test_that_of_another_release_or_of_a_person_has_only_its_english_words(sentence: Sentence) -> None:
    assert sentence.written("fr", WRITERS) is None
    assert str(sentence) == "Tomorrow's words."


def test_it_is_put_into_words_only_when_it_is_read() -> None:
    # Raising one costs no look into the table.
    unknown = Sentence("there_is_no_such_id")
    assert repr(unknown) == "Sentence('there_is_no_such_id', {})"
    with pytest.raises(KeyError):
        str(unknown)
