"""Reads the token counts that providers report."""

from typing import Any, Final, TypeVar

import msgspec

from services.router.providers.answer import UNREADABLE

# Metering would refuse a larger count on every attempt.
LARGEST_TOKENS: Final = 10**9
_MOST_DIGITS: Final = len(str(LARGEST_TOKENS))

_Fields = TypeVar("_Fields", bound=msgspec.Struct)


def read_counts(said: msgspec.Raw, fields: msgspec.json.Decoder[_Fields]) -> dict[str, int]:
    """Returns the valid counts among a provider's fields, each of which is `Raw`. They are decoded separately: an
    invalid count does not break a complete answer, and other fields stay undecoded."""
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
    """Returns the value if it is a valid count, else None."""
    # An exact type check, since bool is a subclass of int.
    return said if type(said) is int and 0 <= said <= LARGEST_TOKENS else None


def total(first: int | None, *others: int | None) -> int | None:
    """Sums counts of which the first is required; None if it is missing or the sum is invalid."""
    return None if first is None else as_count(first + sum(other or 0 for other in others))
