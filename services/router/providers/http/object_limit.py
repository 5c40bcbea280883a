"""Counts the objects in JSON before any of them is decoded.

A list of empty objects takes thirty times its size once decoded. Text may be full of braces, as code is; so braces
in strings are excluded if the plain count exceeds the limit.
"""

from typing import Final

from services.router.providers.base import ProviderError

# Limit per event, or per whole answer. This many are harmless, however they are nested.
MOST_OBJECTS: Final = 20_000
# Shorter JSON cannot contain that many.
SHORT_BYTES: Final = len(b"{},") * MOST_OBJECTS
_ALL_BUT_MARKS: Final = bytes(byte for byte in range(256) if byte not in b'"{')


def check_objects(data: bytes) -> None:
    """Raises ProviderError if there are too many."""
    is_small = len(data) < SHORT_BYTES or data.count(b"{") <= MOST_OBJECTS
    if not is_small and count_objects(data) > MOST_OBJECTS:
        raise ProviderError("sent an answer of too many parts")


def count_objects(data: bytes) -> int:
    """Counts the objects of valid JSON exactly, up to the limit, in linear time and space."""
    # Removes escaped backslashes first, then escaped quotes.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Removes all but quotes and braces, then empty strings; what is outside of strings stays outside.
    marks = plain.translate(None, _ALL_BUT_MARKS).replace(b'""', b"")
    if marks.count(b'"') > 2 * MOST_OBJECTS + 2:
        # Any two remaining strings have an object between them.
        return MOST_OBJECTS + 1
    return sum(len(part) for part in marks.split(b'"')[::2])
