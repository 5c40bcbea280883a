"""The words of the console for the columns of usage, in tables and beside the counts that they are a part of."""

from dataclasses import dataclass
from typing import Any, Final

from console.display.language import N_, gettext
from console.display.words import number, percent
from services.rules.usage import parts_of

TITLES: Final = {
    "prompt_tokens": N_("Prompt tokens"),
    "cached_tokens": N_("Of them cached"),
    "completion_tokens": N_("Answer tokens"),
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
}


def part_lines(usage: Any, whole: str, form: str = "share", *, with_none: bool = False) -> list[str]:
    """Returns a line for each part of a count that has any tokens, or for all parts."""
    return [
        _line(getattr(usage, part), getattr(usage, whole), getattr(PARTS[part], form))
        for part in parts_of(whole)
        if with_none or getattr(usage, part)
    ]


def _line(tokens: int, of_tokens: int, message: str) -> str:
    share = round(100 * tokens / of_tokens) / 100 if of_tokens else 0
    return gettext(message, tokens=number(tokens), share=percent(share))
