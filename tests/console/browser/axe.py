"""Has axe look at a page, in both themes, both sizes and both languages, at what it shows and at what it would open.

Every page and state is judged by every rule, both times: in English on a desktop, then in French on a phone, where the
longer words have the least room. axe takes about 2 ms of processor time for an element, mostly for the contrast of
text, so it is spared what it has seen:

- of elements that look the same, down to their last descendants, and whose ancestors do (cells of a table, bars of a
  chart), it looks at the first two and the last: they have the same attributes, colours and fonts;
- the parts of the frame around the pages (links of the menu, shortcuts) are looked at once for each way they can look;
- the contrast of a text is judged once for each combination of its colour and font with everything that its ancestors
  paint, on any page. What something else is painted before or behind, and what a box that scrolls cuts off, is always
  judged.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import axe_playwright_python
from playwright.sync_api import BrowserContext, Page

PHONE: Final[Any] = {"width": 390, "height": 844}
DESKTOP: Final[Any] = {"width": 1280, "height": 860}
Look = tuple[Any, Any]
DAYLIGHT: Final[Look] = ("light", DESKTOP)
NIGHT: Final[Look] = ("dark", PHONE)
LOOKS: Final = (DAYLIGHT, NIGHT)

_AXE: Final = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
_OPTIONS: Final = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations", "incomplete"],
}
_OPEN: Final = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
_RUN: Final = (Path(__file__).parent / "run_axe.js").read_text()
# What axe has found nothing wrong with, by theme: parts of the frame around the pages, and hashes of colours.
APPROVED: Final[dict[str, dict[str, list[str]]]] = {scheme: {"frame": [], "colours": []} for scheme, _ in LOOKS}


def bring_axe(context: BrowserContext) -> None:
    """Puts axe into every page that the context will open, where it is compiled and run once the page is judged: that
    takes 50 ms of processor time, and most pages are opened only to get to another."""
    context.add_init_script(f"window.bringAxe = () => {{ {_AXE} }}")


def take_look(page: Page, look: Look) -> None:
    """Gives a page the look that is judged next, before it goes elsewhere. If it still showed something, the browser
    would lay that out and paint it once more for each change."""
    page.evaluate("document.body.remove()")
    scheme, size = look
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(size)


def assert_accessible(page: Page, looks: Sequence[Look] = LOOKS) -> None:
    """Finds no violation on a desktop in daylight, nor on a phone at night, and nothing wider than the window."""
    page.evaluate(_OPEN)
    if not page.evaluate("window.bringAxe?.(), 'axe' in window"):
        page.evaluate(_AXE)
    for scheme, size in looks:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(size)
        found = page.evaluate(_RUN, [_OPTIONS, APPROVED[scheme]])
        assert found["told"] == [], f"{page.url}, {scheme}: {found['told']}"
        assert found["overflow"] == 0, f"{page.url}, {scheme}: {found['overflow']} pixels wider than the window"
        for kind in APPROVED[scheme]:
            APPROVED[scheme][kind] += found[kind]
