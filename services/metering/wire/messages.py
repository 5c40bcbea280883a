"""Reads the times, page sizes and page tokens of requests, and writes tokens.

A token is some integers, encoded so that they are not mistaken for something to compute with.
"""

import base64
import binascii
import contextlib
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


def to_token(*numbers: int) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, numbers)).encode()).decode()


def from_token(token: str, count: int) -> list[int]:
    """Decodes a token of so many numbers. Only the exact encoding that we produce is accepted."""
    numbers: list[int] = []
    with contextlib.suppress(binascii.Error, ValueError):
        numbers = [int(word) for word in base64.b64decode(token, altchars=b"-_", validate=True).decode().split(" ")]
    if len(numbers) != count or to_token(*numbers) != token or max(map(abs, numbers)) >= 2**63:
        raise invalid("The page token must be the one that the previous page returned.", "page_token")
    return numbers
