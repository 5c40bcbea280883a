"""No page, in no state, has a violation that axe can find; and none is wider than its window."""

import os
from collections.abc import Iterator
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page

from console.routes import PAGES
from tests.console.browser.aria import SNAPSHOTS, aria_of
from tests.console.browser.conftest import DESKTOP, PATIENCE_MS, PHONE, WATCH
from tests.console.browser.pages import NAMES, PATHS, open_state
from tests.console.harness import ConsoleHarness

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
OPTIONS = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations", "incomplete"],
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
    context = browser.new_context(base_url=running_console.origin, timezone_id="UTC", locale="en-CA")
    context.set_default_timeout(PATIENCE_MS)
    context.add_init_script(WATCH)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_accessible(console: ConsoleHarness, visited: Page, name: str) -> None:
    """The accessibility tree is what a screen reader is told. `make aria-snapshots` writes the trees anew; read the
    difference before you commit it."""
    visited.set_viewport_size(DESKTOP)  # type: ignore[arg-type]
    open_state(visited, console, name)
    told, kept = aria_of(visited), SNAPSHOTS / f"{name}.txt"
    if os.environ.get("WRITE_ARIA_SNAPSHOTS"):
        kept.write_text(told)
    assert_accessible(visited)
    assert visited.evaluate("window.refusedByPolicy") == []
    assert told == kept.read_text()


def test_every_page_is_in_the_list() -> None:
    pages = {page.path for page in PAGES if page.method == "GET" and not page.is_json}
    pages = {path for path in pages if not path.endswith(".csv")}
    patterns = {path: path.partition("{")[0] for path in pages}
    missing = [path for path, start in patterns.items() if not any(_leads_to(each, path, start) for each in PATHS)]
    assert missing == []


def test_every_snapshot_is_of_a_page_in_the_list() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(NAMES)


def _leads_to(opened: str, path: str, start: str) -> bool:
    plain = opened.partition("?")[0]
    return plain == path if start == path else plain.startswith(start) and plain.count("/") == path.count("/")
