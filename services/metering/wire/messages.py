"""Fills messages from records, and reads the times and page sizes of requests."""

from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from services.metering.wire.operations import invalid

MessageT = TypeVar("MessageT", bound=Message)

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MOST: Final = 1_000
# The end of the year 9999.
LATEST_S: Final = 253_402_300_800


def message_of(message_type: type[MessageT], record: Any, /, **others: Any) -> MessageT:
    """Returns a message with the values that a record has under the same names, and with `others`."""
    names: tuple[str, ...] = getattr(record, "__struct_fields__", None) or record._fields
    known = message_type.DESCRIPTOR.fields_by_name
    same = {name: getattr(record, name) for name in names if name in known and name not in others}
    return message_type(**same, **others)


def to_timestamp(at_us: int | None) -> Timestamp | None:
    if at_us is None:
        return None
    timestamp = Timestamp()
    timestamp.FromMicroseconds(at_us)
    return timestamp


def to_microseconds(given: Timestamp, param: str) -> int:
    # Not `ToMicroseconds`, which raises another error.
    if abs(given.seconds) >= LATEST_S:
        raise invalid("A time must lie before the year 10000.", param)
    return given.seconds * 1_000_000 + given.nanos // 1000


def checked_page_size(given: int) -> int:
    if given < 0:
        raise invalid("The page size must not be negative.", "page_size")
    return min(given, PAGE_SIZE_MOST) or PAGE_SIZE_DEFAULT
