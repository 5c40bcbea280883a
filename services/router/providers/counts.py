"""Counts of tokens as providers tell them."""

from typing import Any, Final

import msgspec

from services.router.providers.answer import UNREADABLE

# No count can be larger: metering would refuse it, however often it came.
LARGEST_TOKENS: Final = 10**9


def read_object(said: msgspec.Raw) -> dict[str, Any]:
    """Counts are read by themselves: an answer that came whole is not broken by odd ones."""
    try:
        return as_object(msgspec.json.decode(said))
    except UNREADABLE:
        return {}


def as_object(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def as_count(said: Any) -> int | None:
    """A count that can be true, or None."""
    # Exactly: true is an integer too, to Python.
    return said if type(said) is int and 0 <= said <= LARGEST_TOKENS else None


def total(first: int | None, *others: int | None) -> int | None:
    """Of counts of which the first must be there; None where that cannot be true."""
    return None if first is None else as_count(first + sum(other or 0 for other in others))
