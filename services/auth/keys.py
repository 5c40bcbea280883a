"""API keys: how they are made, read and recognised. Nothing here touches a database or a log.

A key is `sk-legato-` + public id + secret + checksum, all in letters and digits. The public id names the key
(`key_…`) and is no secret. Of the secret only an HMAC is kept, under a pepper that the database never sees, so that a
stolen table opens nothing. The checksum turns mistyped and cut-off keys away before anything is asked of a database.
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

ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
PUBLIC_ID_LENGTH: Final = 16
# A character is worth 5.95 bits: 196 bits of chance.
SECRET_LENGTH: Final = 33
# The fewest characters that hold 32 bits.
CHECKSUM_LENGTH: Final = 6

_SHAPE: Final = re.compile(
    f"{PREFIX}(?P<public_id>[0-9A-Za-z]{{{PUBLIC_ID_LENGTH}}})(?P<secret>[0-9A-Za-z]{{{SECRET_LENGTH}}})"
    f"(?P<checksum>[0-9A-Za-z]{{{CHECKSUM_LENGTH}}})"
)


@dataclass(frozen=True, slots=True)
class ApiKey:
    public_id: str
    secret: str = field(repr=False)

    @property
    def key_id(self) -> str:
        return KEY_ID_PREFIX + self.public_id

    def reveal(self) -> str:
        """The key itself, as its owner sees it once."""
        return PREFIX + self.public_id + self.secret + _checksum(self)


def mint() -> ApiKey:
    return ApiKey(_random_text(PUBLIC_ID_LENGTH), _random_text(SECRET_LENGTH))


def parse(text: str) -> ApiKey | None:
    """None when `text` cannot be a key that we ever made."""
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        return None
    key = ApiKey(shape["public_id"], shape["secret"])
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
    """What the database keeps in place of a secret."""

    digest: bytes = field(repr=False)
    pepper_version: int


class Peppers:
    """The secrets that digests are made with. The newest makes new digests; older ones still recognise theirs."""

    def __init__(self, by_version: Mapping[int, bytes]) -> None:
        self._by_version = dict(by_version)
        self._newest = max(self._by_version)
        self._oldest = min(self._by_version)
        # Stands in for a row that is not there: the same work is done, and no key gives this digest.
        self._nobody = StoredDigest(bytes(32), self._newest)
        # Which they are, for replicas to compare, and nothing that is of use to whoever does not have them.
        self.noted = ",".join(self._entry(version) for version in sorted(self._by_version))

    def has(self, version: int) -> bool:
        return version in self._by_version

    def agree_with(self, noted: str, version: int) -> bool:
        """Whether another replica's answer about a key of this version is the same as ours, as far as it hangs on the
        peppers that it has noted: it has that pepper, and its digest keys are made of the same one."""
        if noted in (self.noted, ""):
            return True
        entries = noted.split(",")
        return self._entry(version) in entries and entries[0] == self._entry(self._oldest)

    def contradicted_by(self, noted: str) -> list[int]:
        """The versions under which others are noted: no key that was made with those is recognised any more."""
        others = [entry for entry in noted.split(",") if entry and entry not in self.noted.split(",")]
        return [version for entry in others if self.has(version := int(entry.partition(":")[0]))]

    def digest(self, key: ApiKey) -> StoredDigest:
        return StoredDigest(self._hmac(key, self._newest), self._newest)

    def recognise(self, key: ApiKey, stored: StoredDigest | None) -> bool:
        """Takes the same time for a key that is unknown (`stored` is None) as for one whose secret is wrong."""
        compared = stored if stored is not None and self.has(stored.pepper_version) else self._nobody
        is_equal = hmac.compare_digest(self._hmac(key, compared.pepper_version), compared.digest)
        return is_equal and compared is stored

    def digest_key(self, account_id: str) -> bytes:
        """For digests of what an account says and nobody may keep. Made of the oldest pepper, so that it stays the same
        while a newer one is brought in."""
        return hmac.digest(self._by_version[self._oldest], b"legato digest key:" + account_id.encode(), "sha256")

    def _entry(self, version: int) -> str:
        return f"{version}:{hmac.digest(self._by_version[version], b'legato pepper', 'sha256')[:8].hex()}"

    def _hmac(self, key: ApiKey, version: int) -> bytes:
        return hmac.digest(self._by_version[version], (key.public_id + key.secret).encode(), "sha256")


def parse_peppers(setting: str) -> Peppers:
    return Peppers(parse_versioned_secrets("LEGATO_KEY_PEPPERS", setting))
