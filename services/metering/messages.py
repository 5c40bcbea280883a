"""Validates the ids, counts, times and page sizes of requests, and reads and writes page tokens.

A token is some integers, encoded so that they are not mistaken for something to compute with.
"""

import base64
import binascii
import contextlib
import re
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.rules.largest_limits import LARGEST_LIMITS

PAGE_SIZE_DEFAULT: Final = 100
PAGE_SIZE_MOST: Final = 1_000
# The end of the year 9999.
LATEST_S: Final = 253_402_300_800
LARGEST_TOKENS: Final = 10**9

_REQUEST_ID: Final = re.compile(r"[0-9a-f]{32}")
ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def invalid(sentence: Sentence, param: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, sentence, param=param)


def checked_id(given: str, param: str) -> str:
    if not ID.fullmatch(given):
        raise invalid(Sentence("id_invalid"), param)
    return given


def checked_request_id(given: str) -> str:
    if not _REQUEST_ID.fullmatch(given):
        raise invalid(Sentence("request_id_invalid"), "request_id")
    return given


def check_ids(request_id: str, **ids: str) -> None:
    """Validates the id of a request and others, by their names, in one call instead of one for each."""
    if not _REQUEST_ID.fullmatch(request_id):
        checked_request_id(request_id)
    for param, given in ids.items():
        if not ID.fullmatch(given):
            checked_id(given, param)


def check_tokens(*counts: int) -> None:
    if min(counts) < 0 or max(counts) > LARGEST_TOKENS:
        raise invalid(Sentence("token_count_range", most=LARGEST_TOKENS), "usage")


def checked_limit(given: int, param: str) -> int:
    """Validates a limit; one above the largest, stored when that was allowed, is clamped."""
    if given < 1:
        raise invalid(Sentence("limit_least"), param)
    largest = LARGEST_LIMITS[param]
    return min(largest, given)


def to_microseconds(given: Timestamp, param: str) -> int:
    # Not `ToMicroseconds`, which raises another error.
    if abs(given.seconds) >= LATEST_S:
        raise invalid(Sentence("time_too_late"), param)
    return given.seconds * 1_000_000 + given.nanos // 1000


def checked_page_size(given: int) -> int:
    if given < 0:
        raise invalid(Sentence("page_size_negative"), "page_size")
    return min(given, PAGE_SIZE_MOST) or PAGE_SIZE_DEFAULT


def to_token(*numbers: int) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, numbers)).encode()).decode()


def from_token(token: str, count: int) -> list[int]:
    """Decodes a token of so many numbers. Only the exact encoding that we produce is accepted."""
    numbers: list[int] = []
    with contextlib.suppress(binascii.Error, ValueError):
        numbers = [int(word) for word in base64.b64decode(token, altchars=b"-_", validate=True).decode().split(" ")]
    if len(numbers) != count or to_token(*numbers) != token or max(map(abs, numbers)) >= 2**63:
        raise invalid(Sentence("page_token_invalid"), "page_token")
    return numbers
