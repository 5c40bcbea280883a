"""Memory, documents and the preview in a real browser: once with services in processes of their own."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from services.auth.core.messages import SWITCHES
from tests.console.browser.axe import DAYLIGHT, NIGHT, Look, assert_accessible
from tests.console.browser.conftest import PATIENCE_MS, WATCH, OpenPage, sizes_of_responses
from tests.console.browser.french import in_french
from tests.console.harness import ConsoleHarness
from tests.support.pdfs import make_pdf
from tests.support.service import make_data_folder
from tests.support.up import Up

expect.set_options(timeout=PATIENCE_MS)
QUESTION = "How long is the warranty of the Zephyr?"
# Says on the browser's console what the rows of uploads say, one after another.
TELL = """
new MutationObserver(() => {
  for (const { textContent } of document.querySelectorAll("[data-uploads] [data-status]")) {
    console.log(`said ${textContent}`);
  }
}).observe(document.querySelector("[data-uploads]"), { subtree: true, childList: true, characterData: true });
"""


def file(name: str, content: bytes) -> Any:
    return {"name": name, "mimeType": "text/plain", "buffer": content}


def said_by(page: Page) -> list[str]:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text.removeprefix("said ")))
    page.evaluate(TELL)
    return said


def test_a_document_is_sent_with_its_progress(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/documents")
    said = said_by(page)
    page.get_by_label("File").set_input_files(file("notes.txt", b"Hello. " * 5000))
    page.get_by_role("button", name="Add the document").click()
    expect(page.get_by_role("rowheader", name="notes.txt")).to_be_visible()
    assert said[0] == "Waiting"
    assert any(text.startswith("Sending: ") for text in said)
    assert "Received. It is read next." in said
    [document] = console.grounding.documents()
    assert said[-1] == f"Ready. Passages: {document.passages}"
    assert document.size_bytes == 35_000


def test_what_cannot_be_taken_is_told_beside_its_name(
    console: ConsoleHarness, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One passage is the most.
    monkeypatch.setattr("services.router.grounding.documents.attachments.PASSAGES_MOST", 1)
    page = open_page("/documents")
    refused = {"big.txt": b"x" * 70_000, "empty.txt": b"", "scan.pdf": make_pdf([""]), "long.txt": b"Hello. " * 5000}
    files = [file(name, content) for name, content in (*refused.items(), ("good.txt", b"Hello."))]
    page.get_by_label("File").set_input_files(files)
    page.get_by_role("button", name="Add the document").click()
    rows = page.locator("[data-uploads] li")
    expect(rows.nth(4)).to_contain_text("Ready. Passages: 1")
    # The list from before would deny it.
    expect(page.get_by_text("No documents yet")).to_be_hidden()
    expect(page.get_by_text("0 of 200")).to_be_hidden()
    expect(rows.nth(0)).to_contain_text("This file is too large: a document may have at most 64 KB.")
    expect(rows.nth(1)).to_contain_text("This file is empty.")
    expect(rows.nth(2)).to_contain_text("The document has no text.")
    expect(rows.nth(3)).to_contain_text("The document has too much text: split it into several.")
    # What is too large or empty is not even sent.
    assert console.backends.calls.count("GroundingAdminService.AddAttachment") == 3
    assert_accessible(page)
    page.get_by_role("link", name="Show the list again").click()
    expect(page.get_by_role("rowheader", name="good.txt")).to_be_visible()


def test_a_dropped_file_is_sent_at_once(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/documents")
    page.evaluate(
        """() => {
          const data = new DataTransfer();
          data.items.add(new File(["Hello."], "dropped.txt"));
          const drop = new DragEvent("drop", { dataTransfer: data, cancelable: true });
          document.querySelector(".drop").dispatchEvent(drop);
        }"""
    )
    expect(page.get_by_role("rowheader", name="dropped.txt")).to_be_visible()


def test_without_javascript_documents_and_notes_are_kept(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/documents", java_script_enabled=False)
    page.get_by_label("File").set_input_files(file("notes.txt", b"Hello. " * 5000))
    page.get_by_role("button", name="Add the document").click()
    expect(page.get_by_role("status")).to_contain_text("The document was added. Passages: ")
    page.locator("summary", has_text="Remove").click()
    page.get_by_role("button", name="Remove it").click()
    expect(page.get_by_role("status")).to_contain_text("The document was removed")
    page.get_by_label("File").set_input_files(file("big.txt", b"x" * 300_000))
    page.get_by_role("button", name="Add the document").click()
    expect(page.get_by_role("alert")).to_contain_text("A document may have at most 0.0625 MB.")
    page.get_by_role("link", name="Memory").click()
    page.get_by_role("textbox", name="Note", exact=True).fill("I drink tea.")
    page.get_by_role("button", name="Add the note").click()
    expect(page.get_by_role("status")).to_contain_text("The note was added.")
    page.get_by_role("link", name="Edit I drink tea.").click()
    page.get_by_role("textbox", name="Note", exact=True).fill("I drink coffee.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("I drink coffee.").first).to_be_visible()
    page.locator("summary", has_text="Forget everything").click()
    page.get_by_label("Yes, remove all notes").check()
    page.get_by_role("button", name="Forget everything").click()
    expect(page.get_by_text("Nothing is remembered yet")).to_be_visible()


@pytest.mark.parametrize(
    "look", [pytest.param(DAYLIGHT, id="daylight"), pytest.param(NIGHT, id="night", marks=pytest.mark.long)]
)
def test_pages_that_answer_are_accessible(console: ConsoleHarness, open_page: OpenPage, look: Look) -> None:
    page = open_page("about:blank") if look is DAYLIGHT else in_french(open_page("about:blank", locale="fr-CA"))
    console.grounding.fill()
    console.auth.change_account(**dict.fromkeys(SWITCHES, True))
    page.goto("/preview")
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_role("button", name="Preview", exact=True).click()
    page.get_by_text("The whole prompt").wait_for()
    assert QUESTION.rsplit(maxsplit=1)[-1] not in page.url
    assert_accessible(page, (look,))
    page.goto("/memory")
    page.get_by_label("Search in the notes").fill("ottawa")
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**/memory/search")
    assert_accessible(page, (look,))
    page.goto("/memory")
    page.get_by_role("textbox", name="Note", exact=True).fill(" ")
    page.get_by_role("button", name="Add the note").click()
    expect(page.get_by_role("alert")).to_be_focused()
    assert_accessible(page, (look,))
    console.auth.change_account(**dict.fromkeys(SWITCHES, False))
    console.grounding.remove_all()
    page.goto("/preview")
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_role("button", name="Preview", exact=True).click()
    page.get_by_text("Switched off for this account.").first.wait_for()
    assert_accessible(page, (look,))


@pytest.mark.parametrize("path", ["/memory", "/documents", "/preview"])
def test_a_page_is_small(console: ConsoleHarness, open_page: OpenPage, path: str) -> None:
    console.grounding.fill()
    sizes = sizes_of_responses(open_page("about:blank"), path)
    assert 1 <= len(sizes) <= 4
    assert sum(sizes) < 30_000


def test_a_note_and_a_document_are_what_the_preview_of_a_real_service_shows(
    browser: Browser, socket_folder: Path
) -> None:
    environ = {"LEGATO_MEMORY": "true", "LEGATO_ATTACHMENTS": "true"}
    data = make_data_folder(socket_folder / "data")
    up = Up(data, "--welcome", "--console-port", "0", "--json", environ=environ, is_forked=True)
    try:
        assert "ready" in json.loads(up.line())
        page = browser.new_page(reduced_motion="reduce")
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(WATCH)
        page.goto(json.loads(up.line())["console"])
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.get_by_role("link", name="Memory").click()
        page.get_by_role("textbox", name="Note", exact=True).fill("I own a Zephyr.")
        page.get_by_role("button", name="Add the note").click()
        expect(page.get_by_role("status")).to_contain_text("The note was added.")
        page.get_by_role("link", name="Documents", exact=True).click()
        said = said_by(page)
        manual = make_pdf(["The Zephyr weighs nine kilos.", "The warranty of the Zephyr lasts for five years."])
        page.get_by_label("File").set_input_files(file("manual.pdf", manual))
        page.get_by_role("button", name="Add the document").click()
        expect(page.get_by_role("rowheader", name=re.compile("manual.pdf"))).to_contain_text("PDF · 2 pages")
        assert any(text.startswith("Sending: ") for text in said)
        assert said[-1] == "Ready. Passages: 2"
        page.get_by_label("File").set_input_files([file("old.rtf", b"{\\rtf1 x}"), file("scan.pdf", make_pdf([""]))])
        page.get_by_role("button", name="Add the document").click()
        rows = page.locator("[data-uploads] li")
        expect(rows.nth(0)).to_contain_text("This is neither text, Markdown, HTML nor a PDF.")
        expect(rows.nth(1)).to_contain_text("no text")
        page.get_by_role("link", name="Preview what the model sees").click()
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_role("button", name="Preview", exact=True).click()
        expect(page.get_by_role("heading", name="[1] manual.pdf, page 2")).to_be_visible()
        expect(page.get_by_text("lasts for five years").first).to_be_visible()
        expect(page.get_by_text("I own a Zephyr.").first).to_be_visible()
        expect(page.get_by_text("nine kilos")).to_have_count(0)
        expect(page.locator("tfoot")).to_contain_text("$0.0")
        assert page.evaluate("window.refusedByPolicy") == []
        page.close()
        # Nothing of it was sent or charged.
        [account] = up.json("accounts", "list")
        balance = up.json("credits", "balance", account["account_id"])
        assert (balance["balance_nanos"], balance["held_nanos"]) == (5 * 10**9, 0)
    finally:
        up.stop()
        up.close()
    logs = "".join(path.read_text() for path in (data / "logs").iterdir())
    for content in ("Zephyr", "manual.pdf", "warranty", "model.called", "chat.ended"):
        assert content not in logs
