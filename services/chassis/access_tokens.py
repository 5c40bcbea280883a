"""Access tokens: the right to act for one user in one account, for a minute.

Auth signs them with its private key (Ed25519); the other services have only public keys, so that none of them, and no
console, can make one. A token travels as metadata of a gRPC call. See docs/decisions/0034-access-tokens.md.
"""

import re
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from legato_protos.type.v1 import access_token_pb2 as pb
from services.chassis.errors import LegatoError, Reason
from services.chassis.sentence import Sentence
from services.chassis.settings import SettingsError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

METADATA_KEY: Final = "legato-access-token-bin"
LIFETIME_US: Final = 60_000_000
# Tokens with the same claims that are signed within it are one and the same: the pages that a user opens one after
# another need it signed once, and verified once by each service.
SIGNED_EVERY_US: Final = 15_000_000
# Tokens have some two hundred bytes.
LARGEST_TOKEN_BYTES: Final = 2_000
# Signed or verified ones, of about a kilobyte with their claims.
KNOWN_TOKENS_MOST: Final = 500
SIGNING_KEY_VARIABLE: Final = "LEGATO_ACCESS_TOKEN_SIGNING_KEY"
PUBLIC_KEYS_VARIABLE: Final = "LEGATO_ACCESS_TOKEN_PUBLIC_KEYS"

_KEY: Final = re.compile("[0-9A-Fa-f]{64}")
# Claims that have the same name in the message.
_CLAIMS: Final = ("user_id", "session_id", "account_id", "role", "is_operator")


class AccountRole(IntEnum):
    """A user's role in an account; a higher one may do all that a lower one may. The numbers are those of the proto."""

    NONE = 0
    VIEWER = 1
    MEMBER = 2
    OWNER = 3


@dataclass(frozen=True, slots=True)
class Access:
    """The claims of a token."""

    user_id: str
    session_id: str
    # Empty: the user belongs to no account.
    account_id: str
    role: AccountRole
    is_operator: bool
    # When the user last proved who they are.
    authenticated_at_us: int
    expires_at_us: int


# The access of the call that the current task serves; None where the caller needs none, such as the command line.
current_access: ContextVar[Access | None] = ContextVar("current_access", default=None)


def expiry_us(now_us: int) -> int:
    """Returns when a token that is signed now expires: after a lifetime at most, after three quarters at least."""
    return now_us - now_us % SIGNED_EVERY_US + LIFETIME_US


def access_invalid() -> LegatoError:
    return LegatoError(Reason.ACCESS_TOKEN_INVALID, Sentence("access_token_invalid"))


class AccessTokenSigner:
    def __init__(self, signing_key: str) -> None:
        """Takes the private key as the setting gives it: 32 bytes in hex."""
        check_signing_key(signing_key)
        self._given = signing_key
        self.sign = lru_cache(KNOWN_TOKENS_MOST)(self._sign)

    def _sign(self, access: Access) -> bytes:
        claims = pb.AccessClaims(**_named_claims(access))
        claims.authenticate_time.FromMicroseconds(access.authenticated_at_us)
        claims.expire_time.FromMicroseconds(access.expires_at_us)
        signed = claims.SerializeToString()
        return pb.AccessToken(claims=signed, signature=self._private_key.sign(signed)).SerializeToString()

    def public_key(self) -> str:
        return self._private_key.public_key().public_bytes_raw().hex()

    @cached_property
    def _private_key(self) -> "Ed25519PrivateKey":
        # A heavy import, needed only where there is a console.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(self._given))


class AccessTokenVerifier:
    def __init__(self, public_keys: str, signer: AccessTokenSigner | None = None) -> None:
        """Takes the public keys as the setting gives them: each in hex, comma-separated; and the service's own signer.
        Without a key, every token is refused."""
        self._given = check_public_keys(public_keys)
        self._signer = signer
        # A page calls several times with one token, and a signature takes as long to verify as a small query.
        self._signed_claims = lru_cache(KNOWN_TOKENS_MOST)(self._read)

    def verify(self, token: bytes, now_us: int) -> Access:
        """Returns the claims of a token that auth signed and that is still valid."""
        access = self._signed_claims(token)
        if access.expires_at_us <= now_us:
            raise access_invalid()
        return access

    def _read(self, token: bytes) -> Access:
        parsed, claims = pb.AccessToken(), pb.AccessClaims()
        try:
            if len(token) > LARGEST_TOKEN_BYTES:
                raise access_invalid()
            parsed.ParseFromString(token)
            if not self._is_signed(parsed.claims, parsed.signature):
                raise access_invalid()
            claims.ParseFromString(parsed.claims)
            named = {**_named_claims(claims), "role": AccountRole(claims.role)}
        except (DecodeError, ValueError):
            raise access_invalid() from None
        if not claims.user_id:
            raise access_invalid()
        return Access(
            authenticated_at_us=claims.authenticate_time.ToMicroseconds(),
            expires_at_us=claims.expire_time.ToMicroseconds(),
            **named,
        )

    def _is_signed(self, claims: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature

        for key in self._public_keys:
            try:
                key.verify(signature, claims)
            except InvalidSignature:
                continue
            return True
        return False

    @cached_property
    def _public_keys(self) -> "list[Ed25519PublicKey]":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        own = [self._signer.public_key()] if self._signer else []
        return [Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) for key in [*own, *self._given]]


def _named_claims(claims: Access | pb.AccessClaims) -> dict[str, Any]:
    return {name: getattr(claims, name) for name in _CLAIMS}


def check_signing_key(given: str) -> None:
    """Raises without quoting it: it is secret."""
    if not _KEY.fullmatch(given):
        raise SettingsError(f"{SIGNING_KEY_VARIABLE} must be 32 bytes in hex (openssl rand -hex 32)")


def check_public_keys(given: str) -> list[str]:
    keys = [key.strip() for key in given.split(",") if key.strip()]
    if not all(_KEY.fullmatch(key) for key in keys):
        raise SettingsError(f"{PUBLIC_KEYS_VARIABLE} must be public keys of 32 bytes in hex, comma-separated")
    return keys
