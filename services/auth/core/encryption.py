"""Encrypts email addresses and what notices say, so that a stolen database tells none of it.

The encryption is deterministic (AES-SIV, RFC 5297): equal addresses are equal when encrypted, so that one is found by
its column and index. A stolen database tells which users and invitations have the same address, and how long it is. See
docs/decisions/0041-encrypted-email-addresses.md.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from services.chassis.versioned_secrets import parse_versioned_secrets

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

KEY_VARIABLE: Final = "LEGATO_CREDENTIAL_ENCRYPTION_KEY"
# Marks what is encrypted; an address in plain text has an @, which neither the mark nor Base64 has.
_SEPARATOR: Final = "."
_PURPOSE: Final = b"legato email addresses"


class TextCipher:
    """Encrypts with the newest key of the setting and, without any, under the newest pepper; decrypts with all."""

    def __init__(self, keys: Mapping[int, bytes], peppers: Mapping[int, bytes]) -> None:
        """Takes secrets by version: those of the setting, and others derived from the peppers."""
        by_name = {f"p{version}": secret for version, secret in sorted(peppers.items())}
        by_name |= {f"k{version}": secret for version, secret in sorted(keys.items())}
        self._newest = list(by_name)[-1]
        # AES-256 for each of the two halves of the construction.
        self._keys = {name: hmac.digest(secret, _PURPOSE, "sha512") for name, secret in by_name.items()}
        self._ciphers: dict[str, AESSIV] = {}

    def encrypt(self, email: str) -> str:
        """Returns the text that is stored; unknown addresses stay empty."""
        if not email:
            return ""
        encrypted = self._cipher(self._newest).encrypt(email.encode(), [_PURPOSE])
        return f"{self._newest}{_SEPARATOR}{base64.urlsafe_b64encode(encrypted).decode()}"

    def decrypt(self, stored: str) -> str:
        """Returns the address; empty if its key is gone, or if the text was changed."""
        from cryptography.exceptions import InvalidTag

        if "@" in stored:
            # From before addresses were encrypted.
            return stored
        name, _, encrypted = stored.partition(_SEPARATOR)
        if name not in self._keys:
            return ""
        try:
            return self._cipher(name).decrypt(base64.urlsafe_b64decode(encrypted), [_PURPOSE]).decode()
        except (InvalidTag, binascii.Error, ValueError):
            return ""

    def is_newest(self, stored: str) -> bool:
        return not stored or stored.startswith(f"{self._newest}{_SEPARATOR}")

    def _cipher(self, name: str) -> "AESSIV":
        if name not in self._ciphers:
            # A heavy import, needed only where users have addresses.
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV

            self._ciphers[name] = AESSIV(self._keys[name])
        return self._ciphers[name]


def parse_encryption_key(setting: str) -> dict[int, bytes]:
    """Parses the setting; empty: not set."""
    return parse_versioned_secrets(KEY_VARIABLE, setting) if setting else {}
