"""Validates fields of incoming messages."""

import re
from typing import Final

from services.chassis.errors import LegatoError, Reason
from services.chassis.load.limits import LARGEST_LIMITS

LARGEST_TOKENS: Final = 10**9

_REQUEST_ID: Final = re.compile(r"[0-9a-f]{32}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def checked_id(given: str, param: str) -> str:
    if not _ID.fullmatch(given):
        raise invalid("An id has 1 to 64 letters, digits, - and _.", param)
    return given


def checked_request_id(given: str) -> str:
    if not _REQUEST_ID.fullmatch(given):
        raise invalid("A request's id has 32 hexadecimal digits.", "request_id")
    return given


def checked_tokens(given: int) -> int:
    if not 0 <= given <= LARGEST_TOKENS:
        raise invalid(f"A count of tokens must be between 0 and {LARGEST_TOKENS}.", "usage")
    return given


def checked_limit(given: int, param: str) -> int:
    """Validates a limit; one above the largest, stored when that was allowed, is clamped."""
    if given < 1:
        raise invalid("A limit must be at least 1.", param)
    largest = LARGEST_LIMITS[param]
    return min(largest, given)


def invalid(message: str, param: str) -> LegatoError:
    return LegatoError(Reason.REQUEST_INVALID, message, param=param)
