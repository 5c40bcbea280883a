"""Joins surrogate pairs that were split between two events.

JSON escapes a character beyond U+FFFF as two surrogates. A server that cuts text by UTF-16 units, as JavaScript
counts, sends one at the end of an event and the other at the beginning of the next: each event is valid JSON, but
its text is not valid Unicode.
"""

import re

# Such a server sends short events, and every escape in them is examined.
LONGEST_HALVED_BYTES = 64 * 1024

# A pair, a single surrogate, or any other escape, so that an escaped backslash is not misread.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<first>\\u[dD][89abAB][0-9a-fA-F]{2})"
    rb"|(?P<second>\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)


def join_halves(event: bytes, first: bytes) -> tuple[bytes, bytes]:
    """Returns the event without an unpaired first half, and that half; a second half is completed with `first`, the
    half kept from the previous event. A half that is never paired is dropped."""

    def join(found: re.Match[bytes]) -> bytes:
        nonlocal first
        if found["first"]:
            first = found["first"]
            return b""
        if found["second"]:
            whole, first = first + found["second"], b""
            return whole
        return found[0]

    return _ESCAPE.sub(join, event), first
