"""The classes that an account and its keys may use, where the console shows and sets them."""

from typing import Any

import pytest

from tests.console.harness import ConsoleHarness

KEY_ID = "key_0000000000000001"
NEW: dict[str, str | list[str]] = {"name": "Report", "scope": ["inference"], "expires": "90", "form_id": "f1"}


def sent(console: ConsoleHarness, kind: str) -> Any:
    """The only request of this kind."""
    [request] = [each for each in console.fakes.requests if type(each).__name__ == kind]
    return request


@pytest.mark.parametrize(
    ("chosen", "class_ids", "is_all"),
    [(["mezzo", "forte"], ["mezzo", "forte"], False), (["mezzo", "forte", "fortissimo"], [], True)],
)
def test_an_owner_narrows_the_account_and_widens_it_again(
    console: ConsoleHarness, chosen: list[str], class_ids: list[str], is_all: bool
) -> None:
    answer = console.post("/settings/allowed-classes", {"allowed": chosen}, console.fakes.sign_in())
    assert answer.status == 303
    request = sent(console, "UpdateAccountRequest")
    assert (list(request.allowed_classes.class_ids), request.allow_all_classes) == (class_ids, is_all)


@pytest.mark.parametrize("chosen", [[], ["piano"], ["auto"]])
@pytest.mark.parametrize("path", ["/settings/allowed-classes", f"/keys/{KEY_ID}/classes"])
def test_at_least_one_class_on_offer_is_chosen(console: ConsoleHarness, path: str, chosen: list[str]) -> None:
    console.fakes.fill()
    answer = console.post(path, {"allowed": chosen}, console.fakes.sign_in())
    assert answer.status == 400
    assert "Choose at least one class." in answer.text
    assert not any(call.endswith(".UpdateAccount") for call in console.fakes.calls)


def test_a_key_is_offered_what_its_account_may_use(console: ConsoleHarness) -> None:
    console.fakes.fill()
    console.fakes.allowed_classes = ["mezzo", "fortissimo"]
    session = console.fakes.sign_in()
    for path in ("/keys/new", f"/keys/{KEY_ID}"):
        text = console.get(path, session).text
        assert 'name="allowed" value="mezzo" checked' in text
        assert 'name="allowed" value="forte"' not in text
    assert console.post("/keys", {**NEW, "allowed": ["forte"]}, session).status == 400
    assert console.post("/keys", {**NEW, "allowed": ["mezzo"]}, session).status == 303
    assert list(sent(console, "CreateKeyRequest").allowed_classes.class_ids) == ["mezzo"]
    assert console.post(f"/keys/{KEY_ID}/classes", {"allowed": ["mezzo", "fortissimo"]}, session).status == 303
    request = sent(console, "UpdateKeyRequest")
    assert request.allow_all_classes
    assert not request.HasField("allowed_classes")
    assert not request.HasField("requests_per_minute")


def test_a_key_shows_what_it_may_use_of_what_its_account_still_allows(console: ConsoleHarness) -> None:
    console.fakes.fill()
    session = console.fakes.sign_in()
    path = "/keys/key_0000000000000002"
    assert "mezzo and forte" in console.get(path, session).text
    console.fakes.allowed_classes = ["fortissimo"]
    assert "None: the account allows none of the key&#39;s classes" in console.get(path, session).text


def test_playground_preview_and_settings_offer_allowed_classes_only(console: ConsoleHarness) -> None:
    console.fakes.grounding.fill()
    console.fakes.allowed_classes = ["mezzo", "fortissimo"]
    session = console.fakes.sign_in()
    for path in ("/playground", "/preview"):
        text = console.get(path, session).text
        assert '<option value="auto"' in text
        assert '<option value="mezzo"' in text
        assert '<option value="forte"' not in text
    text = console.get("/settings", session).text
    assert 'name="class" value="forte"' not in text
    assert "The account may not use forte, so auto is mezzo now." in text
    console.post("/preview", {"question": "How long?", "class": "auto"}, session)
    request = sent(console, "PreviewGroundingRequest")
    assert (request.preferred_class, list(request.allowed_classes.class_ids)) == ("mezzo", ["mezzo", "fortissimo"])
