"""Reads the times and page sizes of requests."""

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from services.metering.wire.operations import invalid

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MOST: Final = 1_000
# The end of the year 9999.
LATEST_S: Final = 253_402_300_800


def to_microseconds(given: Timestamp, param: str) -> int:
    # Not `ToMicroseconds`, which raises another error.
    if abs(given.seconds) >= LATEST_S:
        raise invalid("A time must lie before the year 10000.", param)
    return given.seconds * 1_000_000 + given.nanos // 1000


def checked_page_size(given: int) -> int:
    if given < 0:
        raise invalid("The page size must not be negative.", "page_size")
    return min(given, PAGE_SIZE_MOST) or PAGE_SIZE_DEFAULT
