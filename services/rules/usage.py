"""The tokens that a request used: the one list of columns for tables, sums, messages, files and pages."""

from collections.abc import Callable, Iterable
from operator import attrgetter, sub
from typing import Any, Final

import msgspec
from google.protobuf.message import Message

from legato_protos.type.v1 import usage_pb2


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """Token counts. Fields have the names of those of the messages; in JSON it is an array."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    def minus(self, other: "Usage") -> "Usage":
        return Usage(*map(sub, counts_of(self), counts_of(other)))


COLUMNS: Final = Usage.__struct_fields__
# Columns that count some of the tokens of another one, and the one. No token is in two parts.
PART_OF: Final = {
    "cached_tokens": "prompt_tokens",
    "cache_write_tokens": "prompt_tokens",
    "reasoning_tokens": "completion_tokens",
}
_PART_PLACES: Final = [(COLUMNS.index(part), COLUMNS.index(whole)) for part, whole in PART_OF.items()]
# The counts of anything that has the columns, in their order.
counts_of: Final[Callable[[Any], tuple[int, ...]]] = attrgetter(*COLUMNS)


def usage_of(counted: object) -> Usage:
    """Returns the counts of a message, or of a record that has the columns."""
    return Usage(*counts_of(counted))


def named(counted: object) -> dict[str, int]:
    """Returns the counts by column."""
    return dict(zip(COLUMNS, counts_of(counted), strict=True))


def message_of(counted: object) -> usage_pb2.Usage:
    return usage_pb2.Usage(**dict(zip(COLUMNS, counts_of(counted), strict=True)))


def add_usage(total: Message, added: object) -> None:
    """Adds counts to those of a message."""
    for name, count in zip(COLUMNS, counts_of(added), strict=True):
        setattr(total, name, getattr(total, name) + count)


def with_bounded_parts(counts: Iterable[int]) -> list[int]:
    """Returns the counts, in the order of the columns, with no more tokens in the parts together than in the whole."""
    bounded = list(counts)
    left = bounded.copy()
    for part, whole in _PART_PLACES:
        bounded[part] = min(bounded[part], left[whole])
        left[whole] -= bounded[part]
    return bounded


def parts_of(whole: str) -> list[str]:
    """Returns the columns that count some of the tokens of one."""
    return [part for part, each in PART_OF.items() if each == whole]
