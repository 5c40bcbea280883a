"""How many objects are in JSON, counted before any of them is made.

A list of empty objects takes thirty times its own size once it is read. Text may be full of braces, as code is; so
those that stand in strings are left out, where it comes to that.
"""

from typing import Final

# In one event, or in an answer in one piece. Fewer than this are never too many, however they lie.
MOST_OBJECTS: Final = 20_000
# Shorter JSON has no room for so many.
SHORT_BYTES: Final = len(b"{},") * MOST_OBJECTS
_ALL_BUT_MARKS: Final = bytes(byte for byte in range(256) if byte not in b'"{')


def has_too_many_objects(data: bytes) -> bool:
    if len(data) < SHORT_BYTES or data.count(b"{") <= MOST_OBJECTS:
        return False
    return count_objects(data) > MOST_OBJECTS


def count_objects(data: bytes) -> int:
    """Exactly, of proper JSON, up to the most that may be; in time and space that grow with its size alone."""
    # Backslashes that stand for themselves go first: what is left of them belongs to what follows.
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Then all but quotes and braces, and the strings without any: what stands outside of the others stays outside.
    marks = plain.translate(None, _ALL_BUT_MARKS).replace(b'""', b"")
    if marks.count(b'"') > 2 * MOST_OBJECTS + 2:
        # Between any two strings that are left there is an object.
        return MOST_OBJECTS + 1
    return sum(len(part) for part in marks.split(b'"')[::2])
