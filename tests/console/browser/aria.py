"""Reads a page as a screen reader would, without what differs from day to day."""

import re
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

from tests.console.auth import CODE_PATTERN, KEY_PATTERN, WEBHOOK_SECRET_PATTERN

SNAPSHOTS: Final = Path(__file__).parent / "snapshots"
_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DATE: Final = (
    rf"(?:\d{{1,2}} {_MONTH}(?: \d{{4}})?|{_MONTH} \d{{1,2}}(?:, \d{{4}})?|\d{{4}}-\d\d-\d\d|{_MONTH} \d{{4}})"
)
_TIME: Final = r"\d{1,2}:\d\d(?::\d\d)?(?:\s?[AaPp]\.?[Mm]\b\.?)?(?: UTC)?"
# The longest first: what a pattern has replaced is not looked at again.
_CHANGING: Final = (
    (re.compile(r"http://localhost:\d+"), "ORIGIN"),
    (CODE_PATTERN, "CODE"),
    (KEY_PATTERN, "KEY"),
    (WEBHOOK_SECRET_PATTERN, "SECRET"),
    (re.compile(r"(?:[A-Z2-7]{4} ){7}[A-Z2-7]{4}"), "SECRET"),
    # Those that were there before the test are numbers.
    (re.compile(r"\bkey_(?!0{10})\w{16}\b"), "KEY_ID"),
    (re.compile(r"http://127\.0\.0\.1:\d+/authorize\?\S+"), "ISSUER"),
    (re.compile(rf"(?<!\w){_DATE}(?:,? (?:at )?{_TIME})?(?!\w)"), "DATE"),
    (re.compile(rf"(?<![\w.:]){_TIME}(?![\w:])"), "TIME"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:milliseconds|ms|seconds?|s)\b"), "SPAN"),
)


def aria_of(page: Page) -> str:
    """Returns the accessibility tree of a page as YAML, closed parts included, without the frame around all pages."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    told = page.locator("main").aria_snapshot()
    for pattern, word in _CHANGING:
        told = pattern.sub(word, told)
    return told + "\n"
