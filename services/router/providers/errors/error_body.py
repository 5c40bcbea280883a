"""Parses the body of a provider's error.

Codes are the provider's own. The message and all other fields may quote the client.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from services.router.providers.base import UNREADABLE, as_object

# Of a larger body, only the text of its beginning is read.
LARGEST_ERROR_BODY_BYTES: Final = 16 * 1024

# Fields that hold codes, beside the message and in nested objects, or lists of objects, of these names.
_CODES = ("code", "type", "status")
_CODES_INSIDE = {
    "details": ("reason", "error_code"),
    "metadata": ("error_type", "provider_code"),
    "innererror": ("code",),
}
# The field that is refused, at the beginning of its path.
_FIELD = re.compile(r"[a-z_]+")
# Google's retry delay, in the details.
_RETRY_DELAY = re.compile(r"([0-9]{1,6}(?:\.[0-9]+)?)s")


@dataclass(frozen=True, slots=True, repr=False)
class ErrorBody:
    """An error's codes and message in lower case."""

    codes: frozenset[str] = frozenset()
    message: str = ""
    retry_after_s: float | None = None
    # The field of the request that is refused, if the error has a place for it.
    param: str = ""


def read_error_body(body: bytes) -> ErrorBody:
    """Parses an error body, or an error sent in place of an answer."""
    beginning = body[:LARGEST_ERROR_BODY_BYTES]
    try:
        error = _error_in(msgspec.json.decode(beginning))
    except UNREADABLE:
        # Plain text, HTML or truncated JSON: only the text is usable.
        return ErrorBody(message=beginning.decode(errors="replace").lower())
    if isinstance(error, str):
        return ErrorBody(message=error.lower())
    error = as_object(error)
    message = error.get("message")
    return ErrorBody(
        frozenset(code.lower() for code in _codes(error) if isinstance(code, str)),
        message.lower() if isinstance(message, str) else "",
        _retry_after_s(error),
        _param(error),
    )


def _error_in(body: Any) -> Any:
    if isinstance(body, list) and len(body) == 1:
        body = body[0]
    # Some providers have no nested `error`.
    return body["error"] if isinstance(body, dict) and body.get("error") is not None else body


def _codes(error: dict[str, Any]) -> Iterator[Any]:
    yield from (error.get(name) for name in _CODES)
    for place, names in _CODES_INSIDE.items():
        for table in _tables(error.get(place)):
            yield from (table.get(name) for name in names)


def _param(error: dict[str, Any]) -> str:
    """Returns the field that is refused: OpenAI's `param`, or the second part of FastAPI's `loc`, after the body."""
    param = error.get("param")
    for detail in _tables(error.get("detail")):
        place = detail.get("loc")
        param = place[1] if isinstance(place, list) and len(place) > 1 else param
    found = _FIELD.match(param) if isinstance(param, str) else None
    return found[0] if found else ""


def _retry_after_s(error: dict[str, Any]) -> float | None:
    for detail in _tables(error.get("details")):
        delay = detail.get("retryDelay")
        found = _RETRY_DELAY.fullmatch(delay) if isinstance(delay, str) else None
        if found:
            return float(found[1])
    return None


def _tables(listed: Any) -> Iterator[dict[str, Any]]:
    yield from (as_object(one) for one in (listed if isinstance(listed, list) else [listed]))
