"""Creates, parses and verifies API keys and playground tokens. Nothing here touches a database or a log.

A key is `sk-legato-` + public id + secret + checksum, all in letters and digits. The public id names the key (`key_…`)
and is no secret. Of the secret only an HMAC is stored, under a pepper that the database never sees, so that a stolen
table is useless. The checksum rejects mistyped and truncated keys without a query. A playground token has the same form
after `pt-legato-`, and the id `pt_…`; its digest is of another kind, so that neither passes for the other.
"""

import hmac
import re
import secrets
import string
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from services.chassis.versioned_secrets import parse_versioned_secrets

PREFIX: Final = "sk-legato-"
KEY_ID_PREFIX: Final = "key_"
TOKEN_PREFIX: Final = "pt-legato-"  # noqa: S105
TOKEN_ID_PREFIX: Final = "pt_"  # noqa: S105

ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
PUBLIC_ID_LENGTH: Final = 16
# 5.95 bits per character: 196 bits of entropy.
SECRET_LENGTH: Final = 33
# The fewest characters that hold 32 bits.
CHECKSUM_LENGTH: Final = 6

_SHAPE: Final = re.compile(
    f"(?P<prefix>{PREFIX}|{TOKEN_PREFIX})(?P<public_id>[0-9A-Za-z]{{{PUBLIC_ID_LENGTH}}})(?P<secret>[0-9A-Za-z]{{{SECRET_LENGTH}}})"
    f"(?P<checksum>[0-9A-Za-z]{{{CHECKSUM_LENGTH}}})"
)


@dataclass(frozen=True, slots=True)
class ApiKey:
    public_id: str
    secret: str = field(repr=False)
    # A playground token, which belongs to a session.
    is_token: bool = False

    @property
    def key_id(self) -> str:
        return (TOKEN_ID_PREFIX if self.is_token else KEY_ID_PREFIX) + self.public_id

    def reveal(self) -> str:
        """Returns the key itself, which its owner sees once."""
        prefix = TOKEN_PREFIX if self.is_token else PREFIX
        return prefix + self.public_id + self.secret + _checksum(self)


def mint(*, is_token: bool = False) -> ApiKey:
    return ApiKey(_random_text(PUBLIC_ID_LENGTH), _random_text(SECRET_LENGTH), is_token)


def parse(text: str) -> ApiKey | None:
    """Parses a key; None if we cannot have made it."""
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return None
    key = ApiKey(shape["public_id"], shape["secret"], shape["prefix"] == TOKEN_PREFIX)
    return key if shape["checksum"] == _checksum(key) else None


def _random_text(length: int) -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(length))


def _checksum(key: ApiKey) -> str:
    remaining = zlib.crc32((key.public_id + key.secret).encode())
    characters = []
    for _ in range(CHECKSUM_LENGTH):
        remaining, digit = divmod(remaining, len(ALPHABET))
        characters.append(ALPHABET[digit])
    return "".join(reversed(characters))


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """The digest that the database stores instead of a secret."""

    digest: bytes = field(repr=False)
    pepper_version: int


class Peppers:
    """The secrets that digests are made with. The newest makes new digests; older ones still verify theirs."""

    def __init__(self, by_version: Mapping[int, bytes]) -> None:
        self._by_version = dict(by_version)
        self._newest = max(self._by_version)
        self._oldest = min(self._by_version)
        # Used for unknown keys: it takes the same work, and no key has this digest.
        self._nobody = StoredDigest(bytes(32), self._newest)
        # Fingerprints of the peppers, for replicas to compare; they reveal nothing about the secrets.
        self.noted = ",".join(self._entry(version) for version in sorted(self._by_version))

    def has(self, version: int) -> bool:
        return version in self._by_version

    def agree_with(self, noted: str, version: int) -> bool:
        """Returns whether a replica with the `noted` peppers verifies a key of this version as we do: it has the same
        pepper, and derives digest keys from the same one."""
        if noted in (self.noted, ""):
            return True
        entries = noted.split(",")
        return self._entry(version) in entries and entries[0] == self._entry(self._oldest)

    def contradicted_by(self, noted: str) -> list[int]:
        """Returns the versions that `noted` has with another secret: keys made with those would be refused."""
        others = [entry for entry in noted.split(",") if entry and entry not in self.noted.split(",")]
        return [version for entry in others if self.has(version := int(entry.partition(":")[0]))]

    def digest(self, key: ApiKey) -> StoredDigest:
        return StoredDigest(self._hmac(key, self._newest), self._newest)

    def recognise(self, key: ApiKey, stored: StoredDigest | None) -> bool:
        """Verifies a key in constant time: an unknown one (`stored` is None) takes as long as one with a wrong
        secret."""
        compared = stored if stored is not None and self.has(stored.pepper_version) else self._nobody
        is_equal = hmac.compare_digest(self._hmac(key, compared.pepper_version), compared.digest)
        return is_equal and compared is stored

    def digest_key(self, account_id: str) -> bytes:
        """Derives the key for an account's digests of content that must not be stored. It uses the oldest pepper, so
        that it stays the same when a newer one is added."""
        return hmac.digest(self._by_version[self._oldest], b"legato digest key:" + account_id.encode(), "sha256")

    def digest_code(self, kind: str, code: str) -> bytes:
        """Returns the digest that is stored instead of a token or code. `kind` keeps those of one kind from passing for
        another."""
        return self._code_hmac(self._newest, kind, code)

    def digests_of_code(self, kind: str, code: str) -> list[bytes]:
        """Returns every digest that a token or code may be stored under."""
        return [self._code_hmac(version, kind, code) for version in self._by_version]

    @property
    def newest(self) -> int:
        return self._newest

    def authenticate(self, version: int, kind: str, content: bytes) -> bytes:
        """Returns a code that only who has the pepper can compute."""
        return hmac.digest(self._by_version[version], f"legato {kind}:".encode() + content, "sha256")

    def derive(self, purpose: str) -> dict[int, bytes]:
        """Derives secrets for another purpose, by version."""
        return {version: self.authenticate(version, purpose, b"") for version in self._by_version}

    def _code_hmac(self, version: int, kind: str, code: str) -> bytes:
        return self.authenticate(version, f"{kind} digest", code.encode())

    def _entry(self, version: int) -> str:
        return f"{version}:{hmac.digest(self._by_version[version], b'legato pepper', 'sha256')[:8].hex()}"

    def _hmac(self, key: ApiKey, version: int) -> bytes:
        if key.is_token:
            return self._code_hmac(version, "playground token", key.public_id + key.secret)
        return hmac.digest(self._by_version[version], (key.public_id + key.secret).encode(), "sha256")


def parse_peppers(setting: str) -> Peppers:
    return Peppers(parse_versioned_secrets("LEGATO_KEY_PEPPERS", setting))
