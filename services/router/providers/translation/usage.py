"""Counts of tokens as providers tell them."""

from typing import Any, Final, TypeVar

import msgspec

from services.router.providers.answer import UNREADABLE

# No count can be larger: metering would refuse it, however often it came.
LARGEST_TOKENS: Final = 10**9
_MOST_DIGITS: Final = len(str(LARGEST_TOKENS))

_Fields = TypeVar("_Fields", bound=msgspec.Struct)


def read_counts(said: msgspec.Raw, fields: msgspec.json.Decoder[_Fields]) -> dict[str, int]:
    """Those that can be true, of the fields that a provider has for them, each of which is `Raw`. They are read by
    themselves: an answer that came whole is not broken by odd ones, and nothing is made of what stands beside them."""
    try:
        told = msgspec.structs.asdict(fields.decode(said))
    except UNREADABLE:
        return {}
    counted = {name: read_count(value) for name, value in told.items()}
    return {name: count for name, count in counted.items() if count is not None}


def read_count(said: msgspec.Raw) -> int | None:
    digits = bytes(said)
    return as_count(int(digits)) if len(digits) <= _MOST_DIGITS and digits.isdigit() else None


def as_object(said: Any) -> dict[str, Any]:
    return said if isinstance(said, dict) else {}


def as_count(said: Any) -> int | None:
    """A count that can be true, or None."""
    # Exactly: true is an integer too, to Python.
    return said if type(said) is int and 0 <= said <= LARGEST_TOKENS else None


def total(first: int | None, *others: int | None) -> int | None:
    """Of counts of which the first must be there; None where that cannot be true."""
    return None if first is None else as_count(first + sum(other or 0 for other in others))
