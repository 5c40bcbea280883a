"""Names of keys that replace others."""

import re
from collections.abc import Collection
from typing import Final

from services.auth.core.checks import NAME_LENGTH_MOST

_NUMBERED: Final = re.compile(r"(.*\S) \((\d{1,6})\)")
# For a space and a number in brackets.
_LONGEST_BASE: Final = NAME_LENGTH_MOST - 12


def base_of(name: str) -> str:
    """Returns a name without its number, short enough to get another."""
    numbered = _NUMBERED.fullmatch(name)
    return (numbered[1] if numbered else name)[:_LONGEST_BASE].rstrip()


def name_of_successor(name: str, taken: Collection[str]) -> str:
    """Returns the first name that is not taken: "service (2)" after "service", and "service (3)" after that."""
    numbered = _NUMBERED.fullmatch(name)
    number = int(numbered[2]) if numbered else 1
    while (successor := f"{base_of(name)} ({number + 1})") in taken:
        number += 1
    return successor
