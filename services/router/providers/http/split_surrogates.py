"""Characters that were cut in two.

JSON writes a character beyond the first 65,536 as two escapes. A server that cuts its text by the halves of such
characters, as JavaScript counts them, sends one at the end of an event and the other at the beginning of the next: each
is proper JSON, and neither is text.
"""

import re

# What such a server sends at a time is short, and each escape in it is looked at.
LONGEST_HALVED_BYTES = 64 * 1024

# Two halves, or one, or any other escape: those have to be told from a backslash that stands for itself.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<first>\\u[dD][89abAB][0-9a-fA-F]{2})"
    rb"|(?P<second>\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|\\.",
    re.DOTALL,
)


def join_halves(event: bytes, first: bytes) -> tuple[bytes, bytes]:
    """The event without a half that waits for its other one, which is told as well; and with `first`, the one that
    waited, if this is the other one. One that never finds it is left out."""

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
