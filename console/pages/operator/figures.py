"""The texts that change on a page while it is open, and the findings that need a look there."""

import math
from typing import Final, NamedTuple

from console.display.words import number

NONE: Final = "\N{EN DASH}"
# Above it, what runs is near its limit.
FULL_SHARE: Final = 0.9


class Figure(NamedTuple):
    """A text that changes while the page is open, and its kind: good, warn, bad, or none."""

    text: str
    kind: str = ""


class Finding(NamedTuple):
    """Something that needs a look, and the document that says what to do."""

    kind: str
    text: str
    runbook: str


def counted(value: float | None) -> str:
    return NONE if value is None or math.isnan(value) else number(value)
