import pytest

from services.auth.core.messages import SWITCHES
from services.chassis.access_tokens import AccountRole
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from tests.console.backends import not_answering
from tests.console.harness import ConsoleHarness
from tests.console.metering import ACCOUNT_ID

NOTE = "/memory/note_0000000000000003"


def test_notes_are_shown_newest_first_with_how_much_room_they_take(console: ConsoleHarness) -> None:
    console.grounding.fill()
    text = console.get("/memory", console.auth.sign_in()).text
    assert text.index("Invoices are due") < text.index("I am allergic to nuts") < text.index("British English")
    assert "of 200" in text
    assert "of 512 in a prompt" in text
    assert "All notes are part of every chat" in text
    assert "Cannot be decrypted" in text


def test_more_notes_than_fit_are_not_said_to_be_in_every_chat(console: ConsoleHarness) -> None:
    for _ in range(40):
        console.grounding.add_note("I live in Ottawa, and I write in British English.")
    text = console.get("/memory", console.auth.sign_in()).text
    assert "A chat gets the notes that match its question" in text
    assert "All notes are part" not in text


def test_a_long_note_is_shown_in_full_on_its_own_page(console: ConsoleHarness) -> None:
    console.grounding.add_note("word " * 300 + "at the end.")
    session = console.auth.sign_in()
    assert "at the end." not in console.get("/memory", session).text
    assert "at the end." in console.get("/memory/note_0000000000000001", session).text


def test_a_note_is_added_changed_and_removed(console: ConsoleHarness) -> None:
    session = console.auth.sign_in()
    added = console.post("/memory", {"text": " I drink tea. "}, session)
    assert (added.status, added.headers["location"]) == (303, "/memory")
    assert [(note.account_id, note.text) for note in console.grounding.notes()] == [(ACCOUNT_ID, "I drink tea.")]
    path = f"/memory/{console.grounding.notes()[0].note_id}"
    assert console.post(path, {"text": "I drink coffee."}, session).status == 303
    assert console.grounding.notes()[0].text == "I drink coffee."
    assert console.post(f"{path}/remove", {}, session).status == 303
    assert console.grounding.notes() == []
    assert console.get(path, session).status == 404


@pytest.mark.parametrize("path", ["/memory", NOTE])
def test_a_note_that_is_refused_is_shown_with_the_reason(console: ConsoleHarness, path: str) -> None:
    console.grounding.fill()
    answer = console.post(path, {"text": "  "}, console.auth.sign_in())
    assert answer.status == 400
    assert "A note must have 1 to 2,000 characters." in answer.text
    assert 'aria-invalid="true"' in answer.text


def test_everything_is_forgotten_only_when_that_is_confirmed(console: ConsoleHarness) -> None:
    console.grounding.fill()
    session = console.auth.sign_in()
    refused = console.post("/memory/forget", {}, session)
    assert refused.status == 400
    assert "Nothing was removed" in refused.text
    assert len(console.grounding.notes()) == 5
    done = console.post("/memory/forget", {"confirmed": "yes"}, session)
    assert done.status == 303
    assert any("notes-forgotten.5" in cookie for cookie in done.cookies)
    assert console.grounding.notes() == []


def test_a_search_finds_notes_and_stands_in_no_address_and_no_log(console: ConsoleHarness) -> None:
    console.grounding.fill()
    found = console.post("/memory/search", {"sought": "OTTAWA"}, console.auth.sign_in())
    assert "I live in Ottawa" in found.text
    assert "Invoices" not in found.text
    assert "1 note contains" in found.text
    for said in ("OTTAWA", "Ottawa", "Invoices"):
        assert said not in console.log_stream.getvalue()


def test_notes_are_text_and_no_markup(console: ConsoleHarness) -> None:
    console.grounding.add_note("<script>alert(1)</script>")
    session = console.auth.sign_in()
    for path in ("/memory", "/memory/note_0000000000000001"):
        assert "<script>alert" not in console.get(path, session).text


@pytest.mark.parametrize("path", ["/memory", NOTE, "/documents", "/preview"])
def test_a_viewer_sees_nothing_of_it(console: ConsoleHarness, path: str) -> None:
    console.grounding.fill()
    console.auth.set_role(AccountRole.VIEWER)
    session = console.auth.sign_in()
    answer = console.get(path, session)
    assert answer.status == 403
    assert "Your role does not allow this" in answer.text
    assert not any("Grounding" in call for call in console.backends.calls)
    assert 'href="/memory"' not in console.get("/keys", session).text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/memory"),
        ("POST", "/memory/search"),
        ("POST", "/memory/forget"),
        ("POST", NOTE),
        ("POST", f"{NOTE}/remove"),
        ("POST", "/documents/remove"),
        ("POST", "/preview"),
    ],
)
def test_a_viewer_changes_nothing(console: ConsoleHarness, method: str, path: str) -> None:
    console.grounding.fill()
    console.auth.set_role(AccountRole.VIEWER)
    assert console.post(path, {"text": "x", "confirmed": "yes"}, console.auth.sign_in()).status == 403
    assert len(console.grounding.notes()) == 5
    assert len(console.grounding.documents()) == 3


@pytest.mark.parametrize(
    ("path", "variable"), [("/memory", "LEGATO_MEMORY=true"), ("/documents", "LEGATO_ATTACHMENTS=true")]
)
def test_what_is_not_configured_names_the_setting(console: ConsoleHarness, path: str, variable: str) -> None:
    console.grounding.is_configured = False
    answer = console.get(path, console.auth.sign_in())
    assert answer.status == 200
    assert variable in answer.text
    assert "<textarea" not in answer.text
    assert 'type="file"' not in answer.text


@pytest.mark.parametrize("path", ["/memory", "/documents"])
def test_what_the_account_switched_off_leads_an_owner_to_the_settings(console: ConsoleHarness, path: str) -> None:
    console.auth.change_account(**dict.fromkeys(SWITCHES, False))
    session = console.auth.sign_in()
    assert "Turn it on in the settings" in console.get(path, session).text
    console.auth.set_role(AccountRole.MEMBER)
    assert "An owner can turn it on" in console.get(path, session).text


@pytest.mark.parametrize("path", ["/memory", "/documents"])
def test_while_the_router_does_not_answer_the_page_says_so(console: ConsoleHarness, path: str) -> None:
    for name in ("GetGroundingConfig", "ListNotes", "ListAttachments"):
        console.backends.fail[f"GroundingAdminService.{name}"] = not_answering()
    answer = console.get(path, console.auth.sign_in())
    assert answer.status == 503
    assert "cannot be shown right now" in answer.text


def test_a_limit_that_is_reached_is_told_in_the_routers_words(console: ConsoleHarness) -> None:
    full = LegatoError(
        Reason.REQUEST_INVALID, Sentence.verbatim("An account may have at most 200 notes: remove one first.")
    )
    console.backends.fail = {"GroundingAdminService.AddNote": full}
    answer = console.post("/memory", {"text": "One more."}, console.auth.sign_in())
    assert "at most 200 notes" in answer.text
    assert "One more." in answer.text
