"""Parses secrets with versions, as settings give them: `1:HEX,2:HEX`. Rotation adds a new one, then drops the old."""

import hmac
import re
from collections.abc import Mapping
from typing import Final

from services.chassis.settings import SettingsError

BYTES_LEAST: Final = 32
_ENTRY: Final = re.compile("(?P<version>[1-9][0-9]{0,8}):(?P<secret>(?:[0-9A-Fa-f]{2})+)")


def parse_versioned_secrets(variable: str, given: str) -> dict[int, bytes]:
    """Returns the secrets by version. Error messages quote nothing of the given text: it is secret."""
    by_version: dict[int, bytes] = {}
    mistakes = []
    for position, entry in enumerate(given.split(","), start=1):
        shape = _ENTRY.fullmatch(entry.strip())
        if shape is None:
            mistakes.append(f"{variable}: entry {position} is not VERSION:HEX, as in 1:0f3a…")
            continue
        version, secret = int(shape["version"]), bytes.fromhex(shape["secret"])
        if version in by_version:
            mistakes.append(f"{variable}: version {version} is given twice")
        if len(secret) < BYTES_LEAST:
            mistakes.append(f"{variable}: version {version} has fewer than {BYTES_LEAST} bytes")
        by_version[version] = secret
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return by_version


def fingerprints_of(by_version: Mapping[int, bytes]) -> str:
    """Returns fingerprints to compare secrets by, as `1:HEX,2:HEX`; they reveal nothing about the secrets."""
    return ",".join(fingerprint_of(version, by_version[version]) for version in sorted(by_version))


def fingerprint_of(version: int, secret: bytes) -> str:
    return f"{version}:{hmac.digest(secret, b'legato pepper', 'sha256')[:8].hex()}"
