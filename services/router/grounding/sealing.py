"""Encrypts the texts that owners store, with a searchable index of their words.

Texts are encrypted with AES-256-GCM and bound to their account, kind and row by associated data, so that nobody with
write access to the database can move one to another account. The index stores words only as keyed digests (HMAC), with
a different key for each account. A stolen database reveals how many texts there are, how long they are, and which of
them share words, but not which words.
"""

import hmac
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES: Final = 12
WORD_DIGEST_BYTES: Final = 16

# Limit on the accounts for which a decryption failure was reported.
TOLD_MOST: Final = 10_000


@dataclass(frozen=True, slots=True, repr=False)
class Sealed:
    key_version: int
    # The nonce, then the ciphertext with its tag.
    data: bytes


@dataclass(frozen=True, slots=True)
class SealedLocation:
    """The row of an encrypted text, to which its decryption is bound."""

    account_id: str
    # The kind of text: a note, a passage, a name.
    kind: str
    row_id: str

    @property
    def associated_data(self) -> bytes:
        return "\0".join((self.account_id, self.kind, self.row_id)).encode()


def note_place(account_id: str, note_id: str) -> SealedLocation:
    return SealedLocation(account_id, "note", note_id)


def name_place(account_id: str, attachment_id: str) -> SealedLocation:
    return SealedLocation(account_id, "name", attachment_id)


def passage_place(account_id: str, passage_id: int) -> SealedLocation:
    return SealedLocation(account_id, "passage", str(passage_id))


class KeyMissing(Exception):
    """A text was encrypted with a key that is no longer in the settings."""


class Sealer:
    """Encrypts with the newest version of the key, and decrypts with any version."""

    def __init__(
        self, by_version: Mapping[int, bytes], on_unopened: Callable[[SealedLocation], None] = lambda place: None
    ) -> None:
        """`on_unopened` is called for the first text of each account that fails to decrypt."""
        self._on_unopened = on_unopened
        self._told: set[str] = set()
        self._newest = max(by_version)
        # Separate keys are derived for the two purposes.
        self._ciphers = {
            version: AESGCM(hmac.digest(secret, b"legato grounding texts", "sha256"))
            for version, secret in by_version.items()
        }
        self._word_keys = {
            version: hmac.digest(secret, b"legato grounding words", "sha256") for version, secret in by_version.items()
        }

    def seal(self, text: str, place: SealedLocation) -> Sealed:
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[self._newest].encrypt(nonce, text.encode(), place.associated_data)
        return Sealed(self._newest, nonce + sealed)

    def open(self, sealed: Sealed, place: SealedLocation) -> str:
        cipher = self._ciphers.get(sealed.key_version)
        if cipher is None:
            raise KeyMissing(f"version {sealed.key_version} of LEGATO_GROUNDING_KEY")
        nonce, data = sealed.data[:NONCE_BYTES], sealed.data[NONCE_BYTES:]
        return cipher.decrypt(nonce, data, place.associated_data).decode()

    def open_if_possible(self, sealed: Sealed, place: SealedLocation) -> str | None:
        """Decrypts a text; returns None, not an error, if its key is gone or it was modified or moved."""
        try:
            return self.open(sealed, place)
        except (KeyMissing, InvalidTag, ValueError):
            if place.account_id not in self._told and len(self._told) < TOLD_MOST:
                self._told.add(place.account_id)
                self._on_unopened(place)
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


def _digest(key: bytes, word: str) -> bytes:
    return hmac.digest(key, word.encode(), "sha256")[:WORD_DIGEST_BYTES]
