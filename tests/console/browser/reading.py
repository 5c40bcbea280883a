"""Finds what readers of a page would miss: columns that a phone hides, and dates in another language than the page."""

import re
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

_READ: Final = (Path(__file__).parent / "read_page.js").read_text()
_ENGLISH_MONTH: Final = (
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b\.?"
    r"|January|February|March|April|June|July|August|September|October|November|December"
)
# French has the day before the month, in small letters: "19 nov. 2026".
_ENGLISH_DATE: Final = re.compile(rf"(?:\d\d? (?:{_ENGLISH_MONTH})|(?:{_ENGLISH_MONTH}) \d|\d{{4}}-\d\d-\d\d)")


def hidden_cells(page: Page) -> list[str]:
    """Returns what the tables of a page on a phone leave out."""
    return list(page.evaluate(_READ)["hidden"])


def english_dates(page: Page) -> list[str]:
    """Returns the texts of a French page that have a date as it is written in English, or by computers."""
    return [text for text in page.evaluate(_READ)["texts"] if _ENGLISH_DATE.search(text)]
