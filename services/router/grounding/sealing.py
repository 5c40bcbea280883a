"""Encrypts the texts that owners store, with a searchable index of their words.

Texts are bound to their account, kind and row, so that write access to the database is not enough to move one to
another account. The index stores words only as keyed digests (HMAC), with a different key for each account. A stolen
database reveals how many texts there are, how long they are, and which of them share words, but not which words.
"""

import hmac
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from services.chassis.sealing import CannotOpen, Sealed, VersionedSealer

WORD_DIGEST_BYTES: Final = 16

# Limit on the accounts for which a decryption failure was reported.
LOGGED_MOST: Final = 10_000


class Sealer:
    """Encrypts with the newest version of the key, and decrypts with any version."""

    def __init__(
        self, by_version: Mapping[int, bytes], on_unopened: Callable[[str], None] = lambda account_id: None
    ) -> None:
        """`on_unopened` is called with each account of which a text fails to decrypt, once."""
        self._on_unopened = on_unopened
        self._logged: set[str] = set()
        self._newest = max(by_version)
        # Separate keys are derived for the two purposes.
        self._texts = VersionedSealer(by_version, b"legato grounding texts")
        self._word_keys = {
            version: hmac.digest(secret, b"legato grounding words", "sha256") for version, secret in by_version.items()
        }

    def seal(self, text: str, account_id: str, kind: str, row_id: str) -> Sealed:
        """Encrypts a text of this kind for the row where it is stored."""
        return self._texts.seal(text.encode(), _place(account_id, kind, row_id))

    def open(self, sealed: Sealed, account_id: str, kind: str, row_id: str) -> str | None:
        """Decrypts a text; returns None, not an error, if its key is gone or it was modified or moved."""
        try:
            return self._texts.open(sealed, _place(account_id, kind, row_id)).decode()
        except CannotOpen:
            if account_id not in self._logged and len(self._logged) < LOGGED_MOST:
                self._logged.add(account_id)
                self._on_unopened(account_id)
            return None

    def index_words(self, account_id: str, words: Iterable[str]) -> set[bytes]:
        """Returns the digests under the newest key, for the index."""
        key = self._word_key(account_id, self._newest)
        return {_digest(key, word) for word in words}

    def find_words(self, account_id: str, words: Iterable[str]) -> dict[bytes, str]:
        """Maps every digest that the index may hold, under any key version, to its word."""
        keys = [self._word_key(account_id, version) for version in self._word_keys]
        return {_digest(key, word): word for word in words for key in keys}

    def _word_key(self, account_id: str, version: int) -> bytes:
        return hmac.digest(self._word_keys[version], account_id.encode(), "sha256")


def _place(*names: str) -> bytes:
    return "\0".join(names).encode()


def _digest(key: bytes, word: str) -> bytes:
    return hmac.digest(key, word.encode(), "sha256")[:WORD_DIGEST_BYTES]
