"""Makes and verifies the digests that are stored instead of keys, tokens and codes. Nothing here touches a database."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.auth.core.key_format import ApiKey
from services.chassis.versioned_secrets import fingerprint_of, fingerprints_of, parse_versioned_secrets


@dataclass(frozen=True, slots=True)
class StoredDigest:
    """The digest that the database stores instead of a secret."""

    digest: bytes = field(repr=False)
    pepper_version: int


class Peppers:
    """The secrets that digests are made with. The newest makes new digests; older ones still verify theirs."""

    def __init__(self, by_version: Mapping[int, bytes]) -> None:
        self._by_version = dict(by_version)
        self.newest = max(self._by_version)
        self._oldest = min(self._by_version)
        # Used for unknown keys: it takes the same work, and no key has this digest.
        self._unknown_key = StoredDigest(bytes(32), self.newest)
        # For replicas to compare.
        self.fingerprints = fingerprints_of(self._by_version)

    def has(self, version: int) -> bool:
        return version in self._by_version

    def agree_with(self, fingerprints: str, version: int) -> bool:
        """Returns whether a replica with the `noted` peppers verifies a key of this version as we do: it has the same
        pepper, and derives digest keys from the same one. 0: the key has no secret."""
        if fingerprints in (self.fingerprints, ""):
            return True
        entries = fingerprints.split(",")
        has_pepper = version == 0 or self._entry(version) in entries
        return has_pepper and entries[0] == self._entry(self._oldest)

    def contradicted_by(self, fingerprints: str) -> list[int]:
        """Returns the versions that `noted` has with another secret: keys made with those would be refused."""
        others = [entry for entry in fingerprints.split(",") if entry and entry not in self.fingerprints.split(",")]
        return [version for entry in others if self.has(version := int(entry.partition(":")[0]))]

    def digest(self, key: ApiKey) -> StoredDigest:
        return StoredDigest(self._hmac(key, self.newest), self.newest)

    def recognise(self, key: ApiKey, stored: StoredDigest | None) -> bool:
        """Verifies a key in constant time: an unknown one (`stored` is None) takes as long as one with a wrong
        secret."""
        compared = stored if stored is not None and self.has(stored.pepper_version) else self._unknown_key
        is_equal = hmac.compare_digest(self._hmac(key, compared.pepper_version), compared.digest)
        return is_equal and compared is stored

    def digest_key(self, account_id: str) -> bytes:
        """Derives the key for an account's digests of content that must not be stored. It uses the oldest pepper, so
        that it stays the same when a newer one is added."""
        return hmac.digest(self._by_version[self._oldest], b"legato digest key:" + account_id.encode(), "sha256")

    def digest_code(self, kind: str, code: str) -> bytes:
        """Returns the digest that is stored instead of a token or code. `kind` keeps those of one kind from passing for
        another."""
        return self._code_hmac(self.newest, kind, code)

    def digests_of_code(self, kind: str, code: str) -> list[bytes]:
        """Returns every digest that a token or code may be stored under."""
        return [self._code_hmac(version, kind, code) for version in self._by_version]

    def authenticate(self, version: int, kind: str, content: bytes) -> bytes:
        """Returns a code that only who has the pepper can compute."""
        return hmac.digest(self._by_version[version], f"legato {kind}:".encode() + content, "sha256")

    def derive(self, purpose: str) -> dict[int, bytes]:
        """Derives secrets for another purpose, by version."""
        return {version: self.authenticate(version, purpose, b"") for version in self._by_version}

    def _code_hmac(self, version: int, kind: str, code: str) -> bytes:
        return self.authenticate(version, f"{kind} digest", code.encode())

    def _entry(self, version: int) -> str:
        return fingerprint_of(version, self._by_version[version])

    def _hmac(self, key: ApiKey, version: int) -> bytes:
        if key.is_token:
            return self._code_hmac(version, "playground token", key.public_id + key.secret)
        return hmac.digest(self._by_version[version], (key.public_id + key.secret).encode(), "sha256")


def parse_peppers(setting: str) -> Peppers:
    return Peppers(parse_versioned_secrets("LEGATO_KEY_PEPPERS", setting))
