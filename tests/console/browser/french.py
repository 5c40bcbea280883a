"""Lets what a test does on a page in English be done on the same page in French."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final, cast

from playwright.sync_api import Locator, Page

from console.display.language import catalogue_path, read_catalogue
from tests.console.messages import marked_words

# In these places, a message tells what varies, or has markup.
_VARYING: Final = re.compile(r"%\(\w+\)s|%%|<[^>]+>")


@cache
def _translated() -> dict[str, str]:
    """Returns by each message, and by each plural, what pages say in French."""
    plurals, found = marked_words(), {}
    for one, forms in read_catalogue(catalogue_path("fr").read_text()).items():
        found[one] = forms[0]
        if plurals.get(one):
            found[plurals[one]] = forms[-1]
    return found


def said(english: str) -> str | re.Pattern[str]:
    """Returns what pages say in French for a message, or for a part of one; the same if there is none."""
    translated = _translated()
    if english in translated:
        return translated[english]
    found = [french for message, french in translated.items() if english in message] or list(_filled_in(english))
    parts = [max(_VARYING.split(french), key=len).strip() for french in found]
    return re.compile("|".join(r"\s+".join(map(re.escape, part.split())) for part in parts)) if parts else english


def _filled_in(english: str) -> Iterator[str]:
    """Yields the messages that say this where a word or a figure stands in each place."""
    for message, french in _translated().items():
        texts = _VARYING.split(message)
        if len(texts) > 1 and re.fullmatch(r"\S+".join(map(re.escape, texts)), english):
            yield french


class _FrenchPage:
    def __init__(self, page: Page) -> None:
        self._page = page

    def __getattr__(self, name: str) -> Any:
        return getattr(self._page, name)

    def get_by_label(self, text: str, **options: Any) -> Locator:
        return self._page.get_by_label(said(text), **options)

    def get_by_text(self, text: str, **options: Any) -> Locator:
        return self._page.get_by_text(said(text), **options)

    def get_by_role(self, role: Any, *, name: str | None = None, **options: Any) -> Locator:
        return self._page.get_by_role(role, name=None if name is None else said(name), **options)

    def locator(self, selector: str, *, has_text: str | None = None, **options: Any) -> Locator:
        return self._page.locator(selector, has_text=None if has_text is None else said(has_text), **options)


def in_french(page: Page) -> Page:
    """Returns a page in French, on which things are found by their English names."""
    return cast(Page, _FrenchPage(page))
