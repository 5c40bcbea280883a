"""Sentences of services in the language of a visit."""

import pytest

from console.display.language import EnglishText
from console.display.sentences import in_words
from services.chassis.sentence import Sentence
from services.rules.model_comparison import OutcomeSum, compare

NO_BREAK = "\N{NO-BREAK SPACE}"


@pytest.mark.usefixtures("french")
def test_a_refusal_is_translated_with_its_figures_and_names() -> None:
    assert in_words(Sentence("pdf_damaged")) == "Le PDF est endommagé."
    assert in_words(Sentence("note_length", most=4000)) == (
        f"Une note doit avoir de 1 à 4{NO_BREAK}000{NO_BREAK}caractères."
    )
    away = in_words(Sentence("unavailable", what="The ledger"))
    assert away.startswith(f"Le grand livre{NO_BREAK}:")


@pytest.mark.usefixtures("french")
def test_a_name_that_people_gave_stays_as_it_is() -> None:
    assert "dernier propriétaire de Payments" in in_words(Sentence("last_owner_of", name="Payments"))


@pytest.mark.usefixtures("french")
def test_dollars_are_written_as_the_language_writes_them() -> None:
    limit = Sentence("key_spend_limit_near", key="Chat", period="daily", spent="4.00", limit="1,000.00")
    assert in_words(limit) == (
        f"La clé Chat a dépensé 4,00{NO_BREAK}$ de sa limite de dépenses quotidienne de 1{NO_BREAK}000,00{NO_BREAK}$."
    )


@pytest.mark.usefixtures("french")
def test_every_verdict_on_two_models_is_translated() -> None:
    good, bad = OutcomeSum("the rest", calls=2000, failures=10), OutcomeSum("cedar/new", calls=120, failures=30)
    french = [in_words(compare(good, each)) for each in (bad, good, OutcomeSum("cedar/new", calls=3))]
    assert [text for text in french if isinstance(text, EnglishText)] == []
    assert french[0] == (
        f"cedar/new échoue plus souvent{NO_BREAK}: 25,0{NO_BREAK}% de 120 contre 0,5{NO_BREAK}% de 2{NO_BREAK}000."
    )
    assert in_words(compare(OutcomeSum("the rest", calls=3), good)).endswith("il en faut 20.")


@pytest.mark.usefixtures("french")
def test_that_of_a_newer_release_stays_english_and_is_marked_as_that() -> None:
    told = in_words(Sentence.received("from_tomorrow", {}, "Nobody translated this."))
    assert (told, type(told)) == ("Nobody translated this.", EnglishText)


def test_in_english_dates_are_written_as_pages_write_theirs() -> None:
    assert in_words(Sentence("pdf_damaged")) == "The PDF is damaged."
    expiry = Sentence("notice_key_expires", key="2026-01-02", day="2026-10-08")
    assert in_words(expiry) == "The key 2026-01-02 expires on 8 Oct 2026."


@pytest.mark.usefixtures("french")
def test_a_date_is_written_as_pages_write_theirs() -> None:
    assert in_words(Sentence("notice_key_expires", key="Chat", day="2026-10-08")) == (
        "La clé Chat expire le 8 oct. 2026."
    )
    assert "1er août 2026" in in_words(Sentence("entries_not_kept", day="2026-08-01"))
