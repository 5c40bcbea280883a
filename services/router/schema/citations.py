"""The citations of an answer, which become OpenAI's `annotations`.

Some are found in its text, where sources are numbered and the model cites them by number, as in [2]: those that we give
it, and those of vendors that search. If no search result is cited, all of them are listed at the end of the text, since
the model requested them. Other vendors say which part of the text cites what.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from legato_protos.router.v1.router_pb2 import Citation

_MARK: Final = re.compile(r"\[(\d{1,3}(?:\s?,\s?\d{1,3})*)\]")
# One or several in a row; not after a letter, since `list[1][2]` is code.
_MARKS: Final = re.compile(rf"(?<![\w\])])(?:{_MARK.pattern})+")
CITATIONS_MOST: Final = 200
# A vendor may send anything: longer addresses are left out, and longer titles cut.
_MOST_URL_CHARACTERS: Final = 4096
_MOST_TITLE_CHARACTERS: Final = 512
# Of a field of 32 bits.
_MOST_CHARACTERS: Final = 2**31 - 1
_PAGES: Final = ("http://", "https://")


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    title: str
    url: str
    is_from_search: bool = False


class Sources(list[Source]):
    """The sources of one chat, numbered from 1."""

    def cited_in(self, text: str) -> list[Citation]:
        """Returns the citations in the order of the text."""
        cited = list(islice(self._marked(text), CITATIONS_MOST))
        if not any(source.is_from_search for source, _, _ in cited):
            cited += [(source, len(text), len(text)) for source in self if source.is_from_search]
        return [
            Citation(start_index=start, end_index=end, title=source.title, url=source.url)
            for source, start, end in cited[:CITATIONS_MOST]
        ]

    def _marked(self, text: str) -> Iterator[tuple[Source, int, int]]:
        for row in _MARKS.finditer(text):
            for mark in _MARK.finditer(text, *row.span()):
                for number in mark[1].split(","):
                    if 1 <= int(number) <= len(self):
                        yield self[int(number) - 1], mark.start(), mark.end()


class VendorCitations:
    """The citations that a vendor tells with its answer, each once, in the order in which they come."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int, str], Citation] = {}

    def add(self, start: int, end: int, title: str | None, url: str | None) -> None:
        """Adds a place in the text, in characters. Only addresses of pages are told to clients."""
        if not url or not url.startswith(_PAGES) or len(url) > _MOST_URL_CHARACTERS:
            return
        if len(self._found) < CITATIONS_MOST and 0 <= start <= end <= _MOST_CHARACTERS:
            title = (title or "")[:_MOST_TITLE_CHARACTERS]
            self._found.setdefault((start, end, url), Citation(start_index=start, end_index=end, title=title, url=url))

    def in_order(self) -> list[Citation]:
        """Returns them in the order of the text."""
        return sorted(self._found.values(), key=lambda citation: (citation.start_index, citation.end_index))
