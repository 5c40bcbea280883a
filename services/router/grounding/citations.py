"""Tracks the sources given to a model, and finds where its answer cites them.

Sources are numbered, and the model is asked to cite them by number, as in [2]. Citations become OpenAI's `annotations`.
If no search result is cited, all of them are listed at the end of the text, since the model requested them.
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
