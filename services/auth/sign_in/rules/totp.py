"""Codes of authenticator apps (TOTP, RFC 6238): six digits, a new one every 30 seconds; and their encrypted secrets."""

import base64
import hmac
import secrets
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

from services.chassis.sealing import CannotOpen, Sealed, VersionedSealer

STEP_US: Final = 30_000_000
# 160 bits, as long as the hash.
SECRET_BYTES: Final = 20
DIGITS: Final = 6
# A phone's clock may be half a minute off, in both directions.
STEPS_OFF: Final = 1
ISSUER: Final = "Legato"


def mint_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def code_at(secret: bytes, step: int) -> str:
    digest = hmac.digest(secret, step.to_bytes(8, "big"), "sha1")
    start = digest[-1] & 15
    number = int.from_bytes(digest[start : start + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**DIGITS:0{DIGITS}d}"


def matching_step(secret: bytes, code: str, now_us: int) -> int | None:
    """Returns the step that the code is of, the earliest of those that may be meant."""
    given = "".join(code.split())
    # Others raise an error in the comparison.
    if not given.isascii():
        return None
    now = now_us // STEP_US
    steps = range(now - STEPS_OFF, now + STEPS_OFF + 1)
    return next((step for step in steps if hmac.compare_digest(code_at(secret, step), given)), None)


def as_text(secret: bytes) -> str:
    return base64.b32encode(secret).decode()


def uri_of(secret: bytes, account: str) -> str:
    """Returns the address that authenticator apps read from a QR code."""
    parameters = {"secret": as_text(secret), "issuer": ISSUER, "digits": DIGITS, "period": STEP_US // 1_000_000}
    return f"otpauth://totp/{quote(f'{ISSUER}:{account}')}?{urlencode(parameters)}"


class CredentialCipher:
    """Encrypts secrets, each for its user. The newest key encrypts; older ones still decrypt theirs."""

    def __init__(self, by_version: Mapping[int, bytes]) -> None:
        self._sealer = VersionedSealer(by_version, b"legato credentials")

    def encrypt(self, secret: bytes, user_id: str) -> bytes:
        sealed = self._sealer.seal(secret, _bound_to(user_id))
        return sealed.key_version.to_bytes(4, "big") + sealed.data

    def decrypt(self, sealed: bytes, user_id: str) -> bytes | None:
        """Returns None if the key is gone, or if the secret is not this user's."""
        try:
            return self._sealer.open(Sealed(int.from_bytes(sealed[:4], "big"), sealed[4:]), _bound_to(user_id))
        except CannotOpen:
            return None


def _bound_to(user_id: str) -> bytes:
    return b"totp:" + user_id.encode()
