"""Sentences for people, such as the message of a refusal: an id and figures, whose words are in one table.

The table, sentences.json, has the words of each id in English and in French. In them `{most}` stands for a figure as it
is, `{most:number}` for one in the way that the reader's language writes numbers, `{day:date}` for an ISO date, and
`{what:part}` for one of the words that the table's list `part` translates. Programs get the English words; the console
writes those of its visitor's language.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, Final

ENGLISH: Final = "en"

Figure = str | int
# How figures that are numbers and dates are written.
Writers = Mapping[str, Callable[[str], str]]


class Sentence:
    """An id and its figures. It is put into words when it is read, so that one that nobody reads costs nothing."""

    __slots__ = ("_text", "figures", "id")

    def __init__(self, sentence_id: str, /, **figures: Figure) -> None:
        self.id = sentence_id
        self.figures: Mapping[str, Figure] = figures
        self._text: str | None = None

    @classmethod
    def verbatim(cls, text: str) -> "Sentence":
        """Makes one without an id, of words that are not ours, such as an operator's."""
        return cls.received("", {}, text)

    @classmethod
    def received(cls, sentence_id: str, figures: Mapping[str, Figure], text: str) -> "Sentence":
        """Rebuilds the sentence of another process, which put it into these English words."""
        sentence = cls(sentence_id, **figures)
        sentence._text = text
        return sentence

    def __str__(self) -> str:
        """Returns the English words."""
        if self._text is None:
            self._text = "".join(self._parts(_table()["sentences"][self.id][ENGLISH], ENGLISH, _ENGLISH_WRITERS))
        return self._text

    def __repr__(self) -> str:
        return f"Sentence({self.id!r}, {dict(self.figures)!r})"

    def written(self, language: str, writers: Writers) -> str | None:
        """Returns the words of a language; None if the table has none: the sentence came from another release, or has
        no id."""
        words = _table()["sentences"].get(self.id)
        try:
            return None if words is None else "".join(self._parts(words[language], language, writers))
        except (KeyError, ValueError):
            # Figures of another release.
            return None

    def _parts(self, words: str, language: str, writers: Writers) -> Iterator[str]:
        for text, name, kind, _ in Formatter().parse(words):
            yield text
            if name is None:
                continue
            figure, write = str(self.figures[name]), writers.get(kind or "")
            if write is not None:
                yield write(figure)
            else:
                yield figure if not kind or language == ENGLISH else _table()["words"][kind].get(figure, figure)


def english_number(figure: str) -> str:
    """Groups the digits of a whole number; what is written as a figure already stays."""
    return f"{int(figure):,}" if figure.isdecimal() else figure


_ENGLISH_WRITERS: Final[Writers] = {"number": english_number, "date": str}


@cache
def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("sentences.json").read_text())
    return table
