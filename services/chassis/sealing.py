"""Seals what is stored or handed on: AES-GCM, bound by associated data to the place where it may be opened."""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32


class CannotOpen(Exception):
    """The key is gone, or the content was changed or belongs elsewhere."""


@dataclass(frozen=True, slots=True, repr=False)
class Sealed:
    key_version: int
    # The nonce, then the ciphertext with its tag.
    data: bytes


class VersionedSealer:
    """Seals with the newest version of a key, and opens with any."""

    def __init__(self, by_version: Mapping[int, bytes], purpose: bytes) -> None:
        """Derives the keys of this purpose from secrets that others use too."""
        self._newest = max(by_version)
        self._keys = {version: hmac.digest(secret, purpose, "sha256") for version, secret in by_version.items()}
        self._ciphers: dict[int, AESGCM] = {}

    def seal(self, plain: bytes, bound_to: bytes) -> Sealed:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return Sealed(self._newest, nonce + self._cipher(self._newest).encrypt(nonce, plain, bound_to))

    def open(self, sealed: Sealed, bound_to: bytes) -> bytes:
        if sealed.key_version not in self._keys:
            raise CannotOpen(f"There is no version {sealed.key_version} of the key.")
        nonce, data = sealed.data[:NONCE_BYTES], sealed.data[NONCE_BYTES:]
        return _decrypt(self._cipher(sealed.key_version), nonce, data, bound_to)

    def _cipher(self, version: int) -> "AESGCM":
        if version not in self._ciphers:
            self._ciphers[version] = _new_cipher(self._keys[version])
        return self._ciphers[version]


class SingleUseKey:
    """A key for one file or one result. Its parts are numbered by their nonces, so that none can be exchanged for
    another, and no number may be sealed twice."""

    def __init__(self, key: bytes = b"") -> None:
        """Takes the key of what was sealed elsewhere; without one, makes it."""
        self.key = key or secrets.token_bytes(KEY_BYTES)
        self._cipher = _new_cipher(self.key)

    def seal(self, plain: bytes, number: int = 0, bound_to: bytes = b"") -> bytes:
        return self._cipher.encrypt(number.to_bytes(NONCE_BYTES, "big"), plain, bound_to)

    def open(self, sealed: bytes, number: int = 0, bound_to: bytes = b"") -> bytes:
        return _decrypt(self._cipher, number.to_bytes(NONCE_BYTES, "big"), sealed, bound_to)


def _new_cipher(key: bytes) -> "AESGCM":
    # A heavy import, which many processes never need.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _decrypt(cipher: "AESGCM", nonce: bytes, data: bytes, bound_to: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(nonce, data, bound_to)
    except (InvalidTag, ValueError):
        raise CannotOpen("The content was changed, or belongs elsewhere.") from None
