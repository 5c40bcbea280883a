"""No name is so long that it widens a page: not on a phone, and not on a desktop."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Page

from tests.console.browser.axe import DESKTOP, PHONE
from tests.console.browser.pages import ANSWERS, OPERATOR_STATES, STATES, STRANGERS, open_state
from tests.console.harness import ConsoleHarness
from tests.console.long_names import NAME

# Pixels by which the page is wider than the window, and the first elements that reach out of it, unless in a box of
# their own that scrolls.
WIDTH: Final = """() => {
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
  const { scrollWidth, clientWidth } = document.documentElement;
  const clips = (each) => each && (getComputedStyle(each).overflowX !== "visible" || clips(each.parentElement));
  const out = [...document.querySelectorAll("main *, header *")].filter((each) =>
    each.getBoundingClientRect().right > clientWidth + 1 && !clips(each.parentElement));
  return [scrollWidth - clientWidth, out.slice(0, 3).map((each) => each.outerHTML.slice(0, 90))];
}"""

# One state of each page, the one with the most in it.
_OF_OWNERS: Final = {path: name for name, (path, _prepare) in reversed(STATES.items())}.values()
_OF_OPERATORS: Final = {path: f"operator-{name}" for name, (path, _) in reversed(OPERATOR_STATES.items())}.values()


@pytest.fixture
def long_names(console: ConsoleHarness) -> Iterator[None]:
    console.backends.has_long_names = True
    yield
    console.backends.has_long_names = False


@pytest.mark.usefixtures("long_names")
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([*_OF_OWNERS, "confirm-first-passkey"], id="pages", marks=pytest.mark.long),
        pytest.param([*ANSWERS, *STRANGERS], id="answers", marks=pytest.mark.long),
        pytest.param(list(_OF_OPERATORS), id="operators"),
    ],
)
def test_no_page_is_wider_than_its_window(console: ConsoleHarness, visited: Page, names: list[str]) -> None:
    wider: dict[str, Any] = {}
    named = 0
    for name in names:
        open_state(visited, console, name)
        named += NAME in visited.content()
        for size in (PHONE, DESKTOP):
            visited.set_viewport_size(size)
            if (found := visited.evaluate(WIDTH)) != [0, []]:
                wider[f"{name}, {size['width']}"] = found
    assert wider == {}, "\n".join(f"{where}: {found}" for where, found in wider.items())
    assert named > len(names) / 3
