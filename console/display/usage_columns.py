"""The words of the console for the columns of usage, in tables and beside the counts that they are a part of."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from console.display.language import N_, gettext
from console.display.words import number, percent
from services.rules.usage import COLUMNS, PART_OF, parts_of

TITLES: Final = {
    "prompt_tokens": N_("Prompt tokens"),
    "cached_tokens": N_("Of them cached"),
    "completion_tokens": N_("Answer tokens"),
    "cache_write_tokens": N_("Of them written to a cache"),
    "reasoning_tokens": N_("Of them reasoning"),
}


@dataclass(frozen=True, slots=True)
class PartWords:
    """The words for a part: its count alone, with its share of the whole, and in a sentence below the whole."""

    count: str
    share: str
    sentence: str


PARTS: Final = {
    "cached_tokens": PartWords(
        N_("%(tokens)s cached"), N_("%(tokens)s cached (%(share)s)"), N_("%(tokens)s of them cached (%(share)s)")
    ),
    "cache_write_tokens": PartWords(
        N_("%(tokens)s written to a cache"),
        N_("%(tokens)s written to a cache (%(share)s)"),
        N_("%(tokens)s of them written to a cache (%(share)s)"),
    ),
    "reasoning_tokens": PartWords(
        N_("%(tokens)s reasoning"),
        N_("%(tokens)s reasoning (%(share)s)"),
        N_("%(tokens)s of them reasoning (%(share)s)"),
    ),
}


def titles_of(usage: Any) -> dict[str, str]:
    """Returns the titles of the columns of a table whose total this is. Parts follow the whole, if they have any
    tokens."""
    wholes = [name for name in COLUMNS if name not in PART_OF]
    shown = [name for whole in wholes for name in (whole, *_parts_with_tokens(usage, whole))]
    return {name: TITLES[name] for name in shown}


def part_lines(usage: Any, whole: str, form: str = "share", besides: Collection[str] = ()) -> list[str]:
    """Returns a line for each part of a count that has any tokens, besides those that are told elsewhere."""
    return [
        _line(getattr(usage, part), getattr(usage, whole), getattr(PARTS[part], form))
        for part in _parts_with_tokens(usage, whole)
        if part not in besides
    ]


def _parts_with_tokens(usage: Any, whole: str) -> list[str]:
    return [part for part in parts_of(whole) if getattr(usage, part)]


def _line(tokens: int, of_tokens: int, message: str) -> str:
    share = round(100 * tokens / of_tokens) / 100 if of_tokens else 0
    return gettext(message, tokens=number(tokens), share=percent(share))
