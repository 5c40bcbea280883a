"""Refusals of services in the language of a visit."""

import re
from pathlib import Path

import pytest

from console.display.language import EnglishText
from console.display.service_words import MESSAGES, service_words

SERVICES = Path(__file__).parents[3] / "services"
# What the console and the services call themselves in refusals.
NAMES = {"Sign-in", "The ledger", "The chat service", "Payments", "The service"}
# The services put these together from words of their own.
PUT_TOGETHER = {
    "A name must have 1 to %(most)s characters.",
    "The daily spend limit of a key cannot exceed the account's.",
    "The monthly spend limit of a key cannot exceed the account's.",
    "The total spend limit of a key cannot exceed the account's.",
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
