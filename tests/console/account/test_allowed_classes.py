"""The classes that an account and its keys may use, where the console shows and sets them."""

from dataclasses import replace

import pytest

from services.auth.core.records.accounts import ALL_CLASSES, ClassAllowance
from tests.console.harness import ConsoleHarness

KEY_ID = "key_0000000000000001"
NEW: dict[str, str | list[str]] = {"name": "Report", "scope": ["inference"], "expires": "90", "form_id": "f1"}


def allow(console: ConsoleHarness, *class_ids: str) -> None:
    console.auth.change_account(allowed_classes=ClassAllowance(class_ids))


@pytest.mark.parametrize(
    ("chosen", "allowed"),
    [
        (["mezzo", "forte"], ClassAllowance(("mezzo", "forte"))),
        (["mezzo", "forte", "fortissimo"], ALL_CLASSES),
    ],
)
def test_an_owner_narrows_the_account_and_widens_it_again(
    console: ConsoleHarness, chosen: list[str], allowed: ClassAllowance
) -> None:
    allow(console, "fortissimo")
    answer = console.post("/settings/allowed-classes", {"allowed": chosen}, console.auth.sign_in())
    assert answer.status == 303
    assert console.auth.account().allowed_classes == allowed


@pytest.mark.parametrize("chosen", [[], ["piano"], ["auto"]])
@pytest.mark.parametrize("path", ["/settings/allowed-classes", f"/keys/{KEY_ID}/classes"])
def test_at_least_one_class_on_offer_is_chosen(console: ConsoleHarness, path: str, chosen: list[str]) -> None:
    console.backends.fill()
    answer = console.post(path, {"allowed": chosen}, console.auth.sign_in())
    assert answer.status == 400
    assert "Choose at least one class." in answer.text
    assert console.auth.account().allowed_classes == ALL_CLASSES
    assert console.auth.key(KEY_ID).allowed_classes == ALL_CLASSES


def test_a_key_is_offered_what_its_account_may_use(console: ConsoleHarness) -> None:
    console.backends.fill()
    allow(console, "mezzo", "fortissimo")
    session = console.auth.sign_in()
    for path in ("/keys/new", f"/keys/{KEY_ID}"):
        text = console.get(path, session).text
        assert 'name="allowed" value="mezzo" checked' in text
        assert 'name="allowed" value="forte"' not in text
    assert console.post("/keys", {**NEW, "allowed": ["forte"]}, session).status == 400
    assert console.post("/keys", {**NEW, "allowed": ["mezzo"]}, session).status == 303
    assert console.auth.list_keys()[-1].allowed_classes == ClassAllowance(("mezzo",))
    console.auth.change_key(KEY_ID, allowed_classes=ClassAllowance(("mezzo",)))
    before = console.auth.key(KEY_ID)
    assert console.post(f"/keys/{KEY_ID}/classes", {"allowed": ["mezzo", "fortissimo"]}, session).status == 303
    assert console.auth.key(KEY_ID) == replace(before, allowed_classes=ALL_CLASSES)


def test_a_key_shows_what_it_may_use_of_what_its_account_still_allows(console: ConsoleHarness) -> None:
    console.backends.fill()
    session = console.auth.sign_in()
    path = "/keys/key_0000000000000002"
    assert "mezzo and forte" in console.get(path, session).text
    allow(console, "fortissimo")
    assert "None: the account allows none of the key&#39;s classes" in console.get(path, session).text


def test_playground_preview_and_settings_offer_allowed_classes_only(console: ConsoleHarness) -> None:
    console.grounding.fill()
    allow(console, "mezzo", "fortissimo")
    session = console.auth.sign_in()
    for path in ("/playground", "/preview"):
        text = console.get(path, session).text
        assert '<option value="auto"' in text
        assert '<option value="mezzo"' in text
        assert '<option value="forte"' not in text
    text = console.get("/settings", session).text
    assert 'name="class" value="forte"' not in text
    assert "The account may not use forte, so auto is mezzo now." in text
    console.post("/preview", {"question": "How long?", "class": "auto"}, session)
    [request] = [each for each in console.backends.requests if hasattr(each, "question")]
    assert (request.preferred_class, list(request.allowed_classes.class_ids)) == ("mezzo", ["mezzo", "fortissimo"])
