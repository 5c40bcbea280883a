"""Pages speak the language that their visitor chose, and every word of theirs is in its catalogue."""

import re
from collections import Counter

import pytest

from console.display import language
from console.display.language import EnglishText, catalogue_path, gettext, ngettext, pgettext, read_catalogue
from tests.console.harness import ConsoleHarness
from tests.console.messages import as_po, marked_words

PLACEHOLDER = re.compile(r"%(?:%|\(\w+\)[\d.]*[sdf])")
# Spaces at which no line may break, and straight apostrophes.
MISTYPED = re.compile(r" (?:[:;?!»$]|%(?!\())|« |'")
TAG = re.compile(r"</?\w+[^>]*>")


@pytest.mark.parametrize(
    ("cookie", "accepted", "chosen"),
    [
        ("", "", "en"),
        ("", "fr-CA,fr;q=0.9,en;q=0.8", "fr"),
        ("", "de-DE, en;q=0.4, FR;q=0.5", "fr"),
        ("", "en-CA,fr;q=0.9", "en"),
        ("", "fr;q=0, *;q=0.5", "en"),
        ("", "de,fr;q=much", "en"),
        ("en", "fr", "en"),
        ("fr", "en", "fr"),
        ("xx", "fr", "fr"),
    ],
)
def test_a_choice_counts_before_what_the_browser_asks_for(cookie: str, accepted: str, chosen: str) -> None:
    assert language.choose(cookie, accepted) == chosen


def test_the_catalogue_has_every_word_of_the_console_and_no_other() -> None:
    text = catalogue_path("fr").read_text()
    translated = read_catalogue(text)
    messages = marked_words()
    assert sorted(set(messages) ^ set(translated)) == [], "make messages"
    assert [one for one, forms in translated.items() if not all(forms)] == [], "translate them"
    assert text == as_po("fr", messages, translated), "make messages"


def test_french_is_set_with_spaces_that_do_not_break_and_curved_apostrophes() -> None:
    texts = [form for forms in read_catalogue(catalogue_path("fr").read_text()).values() for form in forms]
    assert [text for text in texts if MISTYPED.search(text)] == []


def test_a_translation_has_the_placeholders_and_the_markup_of_its_message() -> None:
    differing = []
    messages = marked_words()
    for one, forms in read_catalogue(catalogue_path("fr").read_text()).items():
        for original, form in zip((one, messages[one]), forms, strict=False):
            expected = [Counter(pattern.findall(original)) for pattern in (PLACEHOLDER, TAG)]
            if [Counter(pattern.findall(form)) for pattern in (PLACEHOLDER, TAG)] != expected:
                differing.append(form)
    assert differing == []


@pytest.mark.usefixtures("french")
def test_words_are_in_the_language_of_the_visit_and_nothing_is_singular_in_french() -> None:
    assert gettext("Sign out") == "Se déconnecter"
    one, many = "One field needs another look", "%(num)s fields need another look"
    # Words that say that it is one do not say that it is none.
    assert ngettext(one, many, 0) == "0 champs sont à revoir"
    assert ngettext(one, many, 1234) == "1\N{NO-BREAK SPACE}234 champs sont à revoir"
    one, many = "%(num)s page", "%(num)s pages"
    assert [ngettext(one, many, num) for num in (0, 1, 2)] == ["0 page", "1 page", "2 pages"]


@pytest.mark.usefixtures("french")
def test_a_message_is_translated_by_what_it_is_said_of() -> None:
    assert (gettext("Active"), pgettext("account", "Active"), pgettext("user", "Active")) == (
        "Active",
        "Actif",
        "Actif",
    )
    assert (gettext("All"), pgettext("keys", "All")) == ("Tous", "Toutes")
    # A message without a translation stays as it is.
    assert pgettext("nothing", "Active") == "Active"


@pytest.mark.usefixtures("french")
def test_a_services_words_are_marked_as_english_where_the_page_is_not() -> None:
    assert EnglishText("a < b").__html__() == '<span lang="en">a &lt; b</span>'
    language.speak("en")
    assert EnglishText("a < b").__html__() == "a &lt; b"


def test_the_footer_switches_the_language_and_leads_back(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    assert '<html lang="en-CA">' in console.get("/keys", session).text
    assert '<html lang="fr-CA">' in console.get("/keys", session, {"Accept-Language": "fr-CA"}).text
    answer = console.post("/language", {"language": "fr", "next": "/keys?q=a"}, session)
    assert (answer.status, answer.headers["location"]) == (303, "/keys?q=a")
    shown = console.follow(answer, session).text
    assert '<html lang="fr-CA">' in shown
    assert ">Se déconnecter<" in shown
    assert 'name="next" value="/keys?q=a"' in shown
    for given in ({"language": "xx"}, {"language": "fr", "next": "//evil.example"}):
        assert console.post("/language", given).headers["location"] == "/"


@pytest.mark.parametrize("spoken", ["en", "fr"])
def test_every_count_is_written_with_none_one_and_two(spoken: str) -> None:
    language.speak(spoken)
    wrong = []
    for one, many in marked_words().items():
        if not many:
            continue
        forms = {num: language.plural_form(one, many, num) for num in (0, 1, 2)}
        names = {name for form in forms.values() for name in re.findall(r"%\((\w+)\)s", form)}
        told = {num: form % dict.fromkeys(names, num) for num, form in forms.items()}
        # One may be said in words; none and two are told with their figure.
        if not all(str(num) in told[num] for num in (0, 2)):
            wrong.append(forms)
        # A word that changes in one language may stay as it is in the other.
        if one != many and forms[1] == forms[2] and spoken == "en":
            wrong.append(forms)
        if forms[0] not in (forms[1], forms[2]):
            wrong.append(forms)
    language.speak("en")
    assert wrong == []


def test_what_is_counted_has_a_form_for_one() -> None:
    """Placeholders that stand for a count; what is never one, such as a limit, has other names."""
    counted = re.compile(r"%\((?:num|n|count|charged|requests|running|others)\)s (?!of |more |and |waiting)[a-z]")
    never_one = {
        "The PDF has %(count)s pages; the limit is %(most)s.",
        "The account is adding %(running)s documents already. Please retry when one of them is ready.",
    }
    plurals = {one for one, many in marked_words().items() if many}
    found = [one for one in marked_words() if counted.search(one) and one not in plurals | never_one]
    assert sorted(found) == []
