"""Finds the lines of a routes file on which its keys stand, so that mistakes can be told with them."""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

_PART: Final = r"""(?:[\w-]+|"[^"]*"|'[^']*')"""
_PATH: Final = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER: Final = re.compile(rf"\s*\[\[?\s*({_PATH})\s*\]\]?\s*(?:#.*)?")
_ASSIGNMENT: Final = re.compile(rf"\s*({_PATH})\s*=")
_PLACE_IN_TOML: Final = re.compile(r" \(at line (\d+), column \d+\)$")


class Mistake(NamedTuple):
    """A wrong key with what is wrong, and the line from 1 on which it stands; 0 if it is about the whole file."""

    line: int
    key: str
    what: str


class KeyLines:
    """The lines of a text in TOML on which tables begin and keys are given. An inline table has the line of
    its key."""

    def __init__(self, text: str) -> None:
        self._lines: dict[str, int] = {}
        for number, path in _paths_in(text):
            parts = path.split("\n")
            for length in range(1, len(parts) + 1):
                self._lines.setdefault(".".join(parts[:length]), number)

    def find(self, key: str) -> int:
        """Returns the line of a key, or else of what would have it; 0 if there is none."""
        while key and key not in self._lines:
            key = key.rpartition(".")[0]
        return self._lines.get(key, 0)

    def place(self, mistakes: Iterable[str]) -> list[Mistake]:
        """Returns mistakes, as the reader of the file tells them, with their lines."""
        return [self._place(mistake) for mistake in mistakes]

    def _place(self, mistake: str) -> Mistake:
        place = _PLACE_IN_TOML.search(mistake)
        if place is not None:
            return Mistake(int(place[1]), "", mistake[: place.start()])
        key, colon, what = mistake.partition(": ")
        return Mistake(self.find(key), key, what) if colon else Mistake(0, "", mistake)


def _paths_in(text: str) -> Iterator[tuple[int, str]]:
    """Yields the line and the parts of each key, which are divided by line feeds."""
    table: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = _parts_of(header[1])
            yield number, "\n".join(table)
        elif assignment := _ASSIGNMENT.match(line):
            yield number, "\n".join([*table, *_parts_of(assignment[1])])


def _parts_of(path: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(_PART, path)]
