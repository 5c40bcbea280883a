"""Sentences of services in the language of a visit."""

import re
from pathlib import Path

import pytest

from console.display.language import EnglishText
from console.display.service_words import MESSAGES, service_words
from services.auth.notices.rules.words import summarise
from services.rules.model_comparison import OutcomeSum, compare

SERVICES = Path(__file__).parents[3] / "services"
# What the console and the services call themselves, and others, in their sentences.
NAMES = {"Sign-in", "The ledger", "The chat service", "Payments", "The service", "the rest", "daily"}
# The services put these together from words of their own.
PUT_TOGETHER = {
    "A name must have 1 to %(most)s characters.",
    "The daily spend limit of a key cannot exceed the account's.",
    "The monthly spend limit of a key cannot exceed the account's.",
    "The total spend limit of a key cannot exceed the account's.",
    # Summaries of notices and verdicts on models, which have a test of their own.
    *(message for message in MESSAGES if "spend limit of $" in message or "more often: " in message),
}
NO_BREAK = "\N{NO-BREAK SPACE}"


@pytest.mark.usefixtures("french")
def test_a_refusal_is_translated_with_its_figures_and_names() -> None:
    assert service_words("The PDF is damaged.") == "Le PDF est endommagé."
    assert service_words("A note must have 1 to 4,000 characters.") == (
        f"Une note doit avoir de 1 à 4{NO_BREAK}000{NO_BREAK}caractères."
    )
    away = service_words("The ledger is not available right now. Please retry.")
    assert away.startswith(f"Le grand livre{NO_BREAK}:")


@pytest.mark.usefixtures("french")
def test_a_name_that_people_gave_stays_as_it_is() -> None:
    last = "You are the last owner of Payments: make another member an owner, or close the account, first."
    assert "dernier propriétaire de Payments" in service_words(last)


@pytest.mark.usefixtures("french")
def test_every_summary_of_a_notice_is_translated() -> None:
    limits = {"spent_usd": "4.00", "limit_usd": "1,000.00"}
    told = [
        summarise("balance.low", "", {"balance_usd": "0.87", "threshold_usd": "1.00"}),
        *(
            summarise(kind, key, {**limits, "period": period})
            for kind in ("spend_limit.near", "spend_limit.reached")
            for key in ("", "Chat")
            for period in ("day", "month", "total")
        ),
        summarise("key.expires_soon", "Chat", {"expires_at": "2026-10-08T00:00:00Z"}),
        summarise("key.new_network", "Chat", {"network": "192.0.2.0/24"}),
        summarise("test", "", {}),
    ]
    french = [service_words(summary) for summary in told]
    assert [text for text in french if isinstance(text, EnglishText)] == []
    # The key's name is a word of the console, too.
    assert french[4] == (
        f"La clé Chat a dépensé 4,00{NO_BREAK}$ de sa limite de dépenses quotidienne de 1{NO_BREAK}000,00{NO_BREAK}$."
    )


@pytest.mark.usefixtures("french")
def test_every_verdict_on_two_models_is_translated() -> None:
    good, bad = OutcomeSum("the rest", calls=2000, failures=10), OutcomeSum("cedar/new", calls=120, failures=30)
    french = [service_words(compare(good, each)) for each in (bad, good, OutcomeSum("cedar/new", calls=3))]
    assert [text for text in french if isinstance(text, EnglishText)] == []
    assert french[0] == (
        f"cedar/new échoue plus souvent{NO_BREAK}: 25,0{NO_BREAK}% de 120 contre 0,5{NO_BREAK}% de 2{NO_BREAK}000."
    )


@pytest.mark.usefixtures("french")
def test_any_other_refusal_stays_english_and_is_marked_as_that() -> None:
    told = service_words("Nobody translated this.")
    assert (told, type(told)) == ("Nobody translated this.", EnglishText)


def test_in_english_nothing_is_changed() -> None:
    assert type(service_words("The PDF is damaged.")) is str


def test_every_message_is_one_of_the_services() -> None:
    """A message that a service words anew is missed here, rather than on a page."""
    source = "\n".join(path.read_text() for path in SERVICES.rglob("*.py"))
    source = re.sub(r'"\s+f?"', "", source)
    told = re.sub(r"\{[^{}]*\}", "\0", source)
    missing = [message for message in MESSAGES if re.sub(r"%\(\w+\)s", "\0", message) not in told]
    assert set(missing) - NAMES - PUT_TOGETHER == set()
