"""No page, in no state, has a violation that axe can find; and none is wider than its window."""

from collections.abc import Callable, Iterator
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page

from protos.type.v1 import access_token_pb2
from tests.console.browser.conftest import DESKTOP, PATIENCE_MS, PHONE, WATCH, OpenPage, session_cookie
from tests.console.fake_services import Fakes, not_answering
from tests.console.fake_statements import request_id
from tests.console.harness import ConsoleHarness

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
OPTIONS = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations", "incomplete"],
}
KEY = "/keys/key_0000000000000001"


def _fail_metering(fakes: Fakes) -> None:
    fakes.fill()
    fakes.fail = {f"MeteringService.{name}": not_answering() for name in ("ListUsage", "GetBalance")}
    fakes.fail |= {f"StatementService.{name}": not_answering() for name in ("ListRequests", "ListLedgerDays")}


def _rotate(fakes: Fakes) -> None:
    fakes.fill()
    fakes.add_key("Nightly report", replaces="key_0000000000000001")


def _suspend(fakes: Fakes) -> None:
    fakes.is_suspended = True


def _become_viewer(fakes: Fakes) -> None:
    fakes.fill()
    fakes.role = access_token_pb2.ACCOUNT_ROLE_VIEWER


def _grow_stale(fakes: Fakes) -> None:
    fakes.fill()
    fakes.is_fresh = False


def _fill_grounding(fakes: Fakes) -> None:
    fakes.fill()
    fakes.fill_grounding()


def _switch_off_grounding(fakes: Fakes) -> None:
    fakes.fill_grounding()
    fakes.switches = dict.fromkeys(fakes.switches, False)


def _unconfigure_grounding(fakes: Fakes) -> None:
    fakes.grounding.Clear()


def _fail_grounding(fakes: Fakes) -> None:
    fakes.fail = {"GroundingAdminService.GetGroundingConfig": not_answering()}


STATES: dict[str, tuple[str, Callable[[Fakes], None]]] = {
    "overview": ("/", Fakes.fill),
    "overview-without-use": ("/", _suspend),
    "overview-without-metering": ("/", _fail_metering),
    "keys": ("/keys", Fakes.fill),
    "keys-none": ("/keys", lambda fakes: None),
    "key": (KEY, _rotate),
    "key-new": ("/keys/new", Fakes.fill),
    "identify": ("/keys/identify", Fakes.fill),
    "usage": ("/usage", Fakes.fill),
    "usage-by-member": ("/usage?by=member&period=90", Fakes.fill),
    "usage-none": ("/usage", lambda fakes: None),
    "usage-wrong-dates": ("/usage?period=custom&from=2026-02-02&to=2026-01-01", Fakes.fill),
    "usage-without-metering": ("/usage", _fail_metering),
    "requests": ("/requests", Fakes.fill),
    "requests-none": ("/requests", lambda fakes: None),
    "requests-without-metering": ("/requests", _fail_metering),
    "receipt": (f"/requests/{request_id(5)}", Fakes.fill),
    "receipt-running": (f"/requests/{request_id(9_000)}", Fakes.fill),
    "receipt-not-charged": (f"/requests/{request_id(9_001)}", Fakes.fill),
    "receipt-unknown": (f"/requests/{request_id(9_999)}", Fakes.fill),
    "credit": ("/credit", Fakes.fill),
    "credit-none": ("/credit", lambda fakes: None),
    "credit-without-metering": ("/credit", _fail_metering),
    "entries": ("/credit/entries", Fakes.fill),
    "memory": ("/memory", _fill_grounding),
    "memory-none": ("/memory", lambda fakes: None),
    "memory-off": ("/memory", _switch_off_grounding),
    "memory-not-configured": ("/memory", _unconfigure_grounding),
    "memory-without-router": ("/memory", _fail_grounding),
    "note": ("/memory/note_0000000000000003", _fill_grounding),
    "note-unreadable": ("/memory/note_00000000000000ff", _fill_grounding),
    "documents": ("/documents", _fill_grounding),
    "documents-none": ("/documents", lambda fakes: None),
    "documents-off": ("/documents", _switch_off_grounding),
    "documents-not-configured": ("/documents", _unconfigure_grounding),
    "documents-without-router": ("/documents", _fail_grounding),
    "preview": ("/preview", _fill_grounding),
    "security": ("/security", Fakes.fill),
    "security-empty": ("/security", lambda fakes: None),
    "passkey-new": ("/security/passkeys/new", Fakes.fill),
    "confirm": ("/security/passkeys/new", _grow_stale),
    "settings": ("/settings", Fakes.fill),
    "settings-viewer": ("/settings", _become_viewer),
    "audit-log": ("/settings/audit-log", Fakes.fill),
    "not-found": ("/nowhere", Fakes.fill),
}


LOOKS = (("light", DESKTOP), ("dark", PHONE))


def assert_accessible(page: Page) -> None:
    """Looks at what the page shows, and at what it would open, on a desktop in daylight and on a phone at night."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.evaluate(AXE)
    for scheme, size in LOOKS:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size(size)  # type: ignore[arg-type]
        found = page.evaluate("(options) => axe.run(document, options)", OPTIONS)
        for kind in ("violations", "incomplete"):
            told = [(each["id"], [node["html"] for node in each["nodes"]]) for each in found[kind]]
            assert told == [], f"{page.url} {scheme} {kind}"
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


@pytest.fixture(scope="module")
def visited(browser: Browser, running_console: ConsoleHarness) -> Iterator[Page]:
    """One page for all states: a context of its own for each would take longer than looking at it."""
    context = browser.new_context(base_url=running_console.origin)
    context.set_default_timeout(PATIENCE_MS)
    context.add_cookies([session_cookie(running_console, "the-visitor")])
    context.add_init_script(WATCH)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("state", STATES)
def test_a_page_is_accessible(console: ConsoleHarness, visited: Page, state: str) -> None:
    path, prepare = STATES[state]
    prepare(console.fakes)
    console.fakes.sessions.add("the-visitor")
    visited.goto(path)
    assert_accessible(visited)
    assert visited.evaluate("window.refusedByPolicy") == []


def test_pages_before_sign_in_are_accessible(open_page: OpenPage) -> None:
    page = open_page("/sign-in", signed_in=False)
    assert_accessible(page)
    page.get_by_label("Code of your sign-in link").fill("AAAA-BBBB")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.get_by_text("That did not work").wait_for()
    assert_accessible(page)
    page.goto("/invitation")
    assert_accessible(page)
    page.goto("/nowhere")
    assert_accessible(page)


def test_pages_that_answer_a_form_are_accessible(console: ConsoleHarness, open_page: OpenPage) -> None:
    console.fakes.fill()
    page = open_page("/keys/new")
    page.get_by_role("button", name="Create the key").click()
    page.get_by_text("Save the key now").wait_for()
    assert_accessible(page)
    page.goto("/credit")
    page.get_by_role("button", name="Verify my ledger").click()
    page.get_by_text("Your ledger adds up").wait_for()
    assert_accessible(page)
    console.fakes.violations = ["account acct_1: balance is +1 nanos off the sum of its ledger"]
    page.get_by_role("button", name="Verify my ledger").click()
    page.get_by_text("One figure does not add up").wait_for()
    assert_accessible(page)
    page.goto("/security")
    page.get_by_role("button", name="Make new codes").click()
    page.get_by_text("Save them now").wait_for()
    assert_accessible(page)
    page.goto("/settings")
    page.get_by_text("Invite somebody").click()
    page.get_by_role("button", name="Make the invitation").click()
    page.get_by_text("Pass this link on").wait_for()
    assert_accessible(page)
