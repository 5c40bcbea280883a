"""The tokens that a request used: the one list of columns for tables, sums, messages, files and pages."""

from collections.abc import Callable
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

    def minus(self, other: "Usage") -> "Usage":
        return Usage(*map(sub, counts_of(self), counts_of(other)))


COLUMNS: Final = Usage.__struct_fields__
# Columns that count some of the tokens of another one, and the one.
PART_OF: Final = {"cached_tokens": "prompt_tokens"}
# The counts of anything that has the columns, in their order.
counts_of: Final[Callable[[Any], tuple[int, ...]]] = attrgetter(*COLUMNS)


def usage_of(counted: object) -> Usage:
    """Returns the counts of a message, or of a record that has the columns."""
    return Usage(*counts_of(counted))


def named(counted: object) -> dict[str, int]:
    """Returns the counts by column."""
    return dict(zip(COLUMNS, counts_of(counted), strict=True))


def message_of(counted: object) -> usage_pb2.Usage:
    return usage_pb2.Usage(**named(counted))


def add_usage(total: Message, added: Any) -> None:
    """Adds counts to those of a message."""
    for name, count in zip(COLUMNS, counts_of(added), strict=True):
        setattr(total, name, getattr(total, name) + count)


def with_bounded_parts(usage: Usage) -> Usage:
    """Returns the usage with no more tokens in a part than in the whole."""
    bounds = {part: min(getattr(usage, part), getattr(usage, whole)) for part, whole in PART_OF.items()}
    return msgspec.structs.replace(usage, **bounds)


def parts_of(whole: str) -> list[str]:
    """Returns the columns that count some of the tokens of one."""
    return [part for part, each in PART_OF.items() if each == whole]
