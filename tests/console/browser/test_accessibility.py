"""No page, in no state, has a violation that axe can find; and none is wider than its window."""

import os

import pytest
from playwright.sync_api import Page

from console.routes import PAGES
from tests.console.browser.aria import SNAPSHOTS, aria_of
from tests.console.browser.axe import DAYLIGHT, take_look
from tests.console.browser.pages import (
    NAMES,
    PATHS,
    assert_accessible_in_one_look,
    look_of,
    open_state,
    other_look_of,
)
from tests.console.harness import ConsoleHarness


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_accessible(console: ConsoleHarness, visited: Page, name: str) -> None:
    """The accessibility tree is what a screen reader is told. `make aria-snapshots` writes the trees anew; read the
    difference before you commit it."""
    take_look(visited, DAYLIGHT)
    open_state(visited, console, name)
    told, kept = aria_of(visited), SNAPSHOTS / f"{name}.txt"
    if os.environ.get("WRITE_ARIA_SNAPSHOTS"):
        kept.write_text(told)
    assert_accessible_in_one_look(visited, console, name, look_of(name))
    assert visited.evaluate("window.refusedByPolicy") == []
    assert told == kept.read_text()


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_accessible_in_the_other_look_too(console: ConsoleHarness, visited: Page, name: str) -> None:
    take_look(visited, DAYLIGHT)
    open_state(visited, console, name)
    assert_accessible_in_one_look(visited, console, name, other_look_of(name))


def test_every_page_is_in_the_list() -> None:
    # Those that show a result once are reached by a form: ANSWERS has them.
    pages = {page.path for page in PAGES if page.method == "GET" and not page.is_json and not page.shows_once}
    pages = {path for path in pages if not path.endswith((".csv", ".zip"))}
    patterns = {path: path.partition("{")[0] for path in pages}
    missing = [path for path, start in patterns.items() if not any(_leads_to(each, path, start) for each in PATHS)]
    assert missing == []


def test_every_snapshot_is_of_a_page_in_the_list() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == set(NAMES)


def _leads_to(opened: str, path: str, start: str) -> bool:
    plain = opened.partition("?")[0]
    return plain == path if start == path else plain.startswith(start) and plain.count("/") == path.count("/")
