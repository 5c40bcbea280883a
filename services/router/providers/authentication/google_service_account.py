"""Access tokens for a service account of Google, whose key signs a token of our own (RFC 7523, section 2.1)."""

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from services.router.providers.authentication.bearer import TokenCredentials, read_token
from services.router.providers.authentication.credentials import CredentialsUnavailable
from services.router.providers.authentication.renewal import Expiring
from services.router.providers.authentication.secret import read_text
from services.router.providers.authentication.server_clock import ServerClock
from services.router.providers.authentication.token_requests import Refused, check_address, post_form

CLOUD_PLATFORM: Final = "https://www.googleapis.com/auth/cloud-platform"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
# The longest that Google takes.
_LIFETIME_S: Final = 3600


class _KeyFile(msgspec.Struct, frozen=True):
    client_email: str
    private_key: str
    private_key_id: str
    token_uri: str


@dataclass(frozen=True, slots=True)
class GoogleServiceAccount(TokenCredentials):
    source: ClassVar[str] = "google_service_account"
    path: Path
    scope: str = CLOUD_PLATFORM
    clock: ServerClock = field(default_factory=ServerClock, repr=False, compare=False)

    @property
    def identity(self) -> str:
        return str(self.path)

    def check(self) -> None:
        self._sign(self._read())

    async def obtain(self) -> Expiring[str]:
        key = self._read()
        try:
            return await self._ask(key)
        except Refused as refused:
            # The server refuses what was signed in its future; its headers have its time.
            if not self.clock.learn(refused.headers):
                raise
        return await self._ask(key)

    async def _ask(self, key: _KeyFile) -> Expiring[str]:
        response = await post_form(key.token_uri, {"grant_type": _GRANT, "assertion": self._sign(key)})
        return read_token(response.json)

    def _read(self) -> _KeyFile:
        try:
            key = msgspec.json.decode(read_text(self.path), type=_KeyFile)
        except (msgspec.DecodeError, RecursionError):
            raise CredentialsUnavailable(f"{self.path} is no key of a service account") from None
        check_address(key.token_uri)
        return key

    def _sign(self, key: _KeyFile) -> str:
        # A heavy import, for those alone who have such a key.
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        now_s = int(self.clock.now_s())
        times = {"iat": now_s, "exp": now_s + _LIFETIME_S}
        claims = {"iss": key.client_email, "scope": self.scope, "aud": key.token_uri, **times}
        header = {"alg": "RS256", "typ": "JWT", "kid": key.private_key_id}
        signed = b".".join(map(_encoded, (header, claims)))
        try:
            private_key = load_pem_private_key(key.private_key.encode(), None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            private_key = None
        if not isinstance(private_key, RSAPrivateKey):
            raise CredentialsUnavailable(f"{self.path} has no private key for RSA")
        signature = private_key.sign(signed, PKCS1v15(), SHA256())
        return (signed + b"." + _base64(signature)).decode()


def _encoded(part: object) -> bytes:
    return _base64(msgspec.json.encode(part))


def _base64(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")
