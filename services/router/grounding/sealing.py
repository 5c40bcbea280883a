"""How the texts that owners keep here are sealed, and how their words are found all the same.

A text is sealed with AES-256-GCM. It opens only as what it was sealed as: a text of this account, of this kind, in this
row. So nobody who can write to the database can move it to another account. The index knows words by keyed digests
alone, other ones in each account. What a stolen file tells is how many texts there are, how long they are, and which of
them have words in common; which words those are it does not tell.
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

# Accounts of which it was told that something of theirs does not open.
TOLD_MOST: Final = 10_000


@dataclass(frozen=True, slots=True, repr=False)
class Sealed:
    key_version: int
    # The nonce, then what AES-GCM gave.
    data: bytes


@dataclass(frozen=True, slots=True)
class SealedLocation:
    """Where a text is kept; it opens nowhere else."""

    account_id: str
    # What the text is: a note, a passage, a name.
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
    """A text was sealed with a key that the settings no longer have."""


class Sealer:
    """Holds every version of the key: the newest seals, older ones still open what they have sealed."""

    def __init__(
        self, by_version: Mapping[int, bytes], on_unopened: Callable[[SealedLocation], None] = lambda place: None
    ) -> None:
        """`on_unopened` is told of the first text of an account that should open and does not."""
        self._on_unopened = on_unopened
        self._told: set[str] = set()
        self._newest = max(by_version)
        # One secret, two purposes: neither use of it says anything about the other.
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
        """None for a text whose key is gone, or that was changed or moved: it must not take others with it."""
        try:
            return self.open(sealed, place)
        except (KeyMissing, InvalidTag, ValueError):
            if place.account_id not in self._told and len(self._told) < TOLD_MOST:
                self._told.add(place.account_id)
                self._on_unopened(place)
            return None

    def index_words(self, account_id: str, words: Iterable[str]) -> set[bytes]:
        """As the index keeps them from now on."""
        key = self._word_key(account_id, self._newest)
        return {_digest(key, word) for word in words}

    def find_words(self, account_id: str, words: Iterable[str]) -> dict[bytes, str]:
        """The words by every digest under which the index may have them."""
        keys = [self._word_key(account_id, version) for version in self._word_keys]
        return {_digest(key, word): word for word in words for key in keys}

    def _word_key(self, account_id: str, version: int) -> bytes:
        return hmac.digest(self._word_keys[version], account_id.encode(), "sha256")


def _digest(key: bytes, word: str) -> bytes:
    return hmac.digest(key, word.encode(), "sha256")[:WORD_DIGEST_BYTES]
