"""The frame around all pages, as a screen reader tells it: snapshots of pages leave it out."""

from console.routes import PAGES
from tests.console.browser.conftest import OpenPage
from tests.console.harness import ConsoleHarness

ITEM = """      - listitem:
        - link "{}":
          - /url: {}
"""
FRAME = """- banner:
  - link "Legato":
    - /url: /
  - navigation "Pages":
    - list:
{}    - paragraph:
      - strong: Ada Lovelace
      - text: Analytical Engines · Owner
    - button "Sign out\""""
FOOT = """- contentinfo:
  - text: English
  - button "Français\""""


def test_the_frame_has_the_menu_and_who_is_signed_in(console: ConsoleHarness, open_page: OpenPage) -> None:
    page = open_page("/security")
    entries = [each for each in PAGES if each.is_in_menu and not each.needs_operator]
    items = "".join(ITEM.format(each.menu.title, each.path) for each in entries)
    assert page.locator("header.side").aria_snapshot() == FRAME.format(items)
    assert page.locator("footer").aria_snapshot() == FOOT
