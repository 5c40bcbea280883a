"""Remembers how many tokens long texts have: every turn of a conversation sends those of the turns before again.

A text is remembered as a digest, keyed by a secret of the process, and a number: nothing of it can be read from here.
"""

import hashlib
import os
from collections import OrderedDict
from functools import cache
from typing import Final

# A shorter text is counted about as fast as it is looked up.
LEAST_BYTES: Final = 512
# Some megabytes.
MOST_TEXTS: Final = 16_384
_KEY_BYTES: Final = 64


class KnownCounts:
    __slots__ = ("_by_digest", "_keyed", "_most")

    def __init__(self, most: int = MOST_TEXTS) -> None:
        """Forgets what was not asked for the longest time when there are more than `most`."""
        self._most = most
        self._keyed = hashlib.sha256(os.urandom(_KEY_BYTES))
        self._by_digest: OrderedDict[bytes, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_digest)

    def begin_digest(self) -> "hashlib._Hash":
        """Returns the digest of nothing yet, to be updated with a text and given to the other methods."""
        return self._keyed.copy()

    def find(self, digest: bytes) -> int | None:
        found = self._by_digest.get(digest)
        if found is not None:
            self._by_digest.move_to_end(digest)
        return found

    def remember(self, digest: bytes, tokens: int) -> None:
        self._by_digest[digest] = tokens
        if len(self._by_digest) > self._most:
            self._by_digest.popitem(last=False)


@cache
def known_counts() -> KnownCounts:
    """Returns those of this process."""
    return KnownCounts()
