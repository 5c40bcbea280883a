"""The records of signing in: credentials, codes that are good once, and where a sign-in comes from."""

import ipaddress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from services.auth.core.records.users import User
from services.chassis.access_tokens import AccountRole

BROWSER_LENGTH_MOST: Final = 100


class ChallengeKind(StrEnum):
    PASSKEY = "passkey"
    # The secret of an authenticator app that is not in use yet.
    TOTP = "totp"
    # A sign-in link that was sent by mail.
    MAILED_LINK = "mailed-link"
    # What the browser is to come back with from the issuer.
    OIDC = "oidc"
    # What the console shows once, sealed.
    RESULT = "result"


@dataclass(frozen=True, slots=True)
class Client:
    """The origin of a sign-in, as far as the console knows it."""

    address: str = field(repr=False)
    browser: str = ""

    @property
    def network(self) -> str:
        """The /24 or /48 of the address, which is all that is stored; empty if it is none."""
        return _network_of(self.address, 24, 48)

    @property
    def limited_as(self) -> str:
        """The part of the address that rate limits apply to: a client with one IPv6 address has 2^64 of them."""
        return _network_of(self.address, 32, 64)

    @property
    def browser_name(self) -> str:
        return "".join(filter(str.isprintable, self.browser))[:BROWSER_LENGTH_MOST]


@dataclass(frozen=True, slots=True)
class UserSummary:
    """A user, and how they can sign in."""

    user: User
    passkeys: int = 0
    recovery_codes: int = 0
    # 1: a password and an authenticator app, which sign in together.
    passwords: int = 0
    identities: int = 0

    @property
    def ways(self) -> int:
        """The number of ways to sign in, recovery codes counted as one."""
        return self.passkeys + min(1, self.recovery_codes) + self.passwords + self.identities


@dataclass(frozen=True, slots=True)
class Passkey:
    passkey_id: str
    user_id: str
    credential_id: bytes = field(repr=False)
    # The attested credential data of WebAuthn: the public key, and what made it.
    credential: bytes = field(repr=False)
    sign_count: int
    rp_id: str
    name: str
    is_backed_up: bool
    created_at_us: int
    last_used_hour_us: int | None = None

    @property
    def use_id(self) -> str:
        """Names its last use, by those authenticators that count."""
        return f"{self.passkey_id}#{self.sign_count}" if self.sign_count else self.passkey_id


@dataclass(frozen=True, slots=True)
class Challenge:
    """A random value for a passkey to sign, or for another use that is good once."""

    challenge_id: str = field(repr=False)
    # None: any user who proves something with it.
    user_id: str | None
    challenge: bytes = field(repr=False)
    # The console's, of passkeys and issuers; of what one session alone may use, that session.
    origin: str
    expires_at_us: int
    kind: ChallengeKind = ChallengeKind.PASSKEY


@dataclass(frozen=True, slots=True)
class Password:
    user_id: str
    hash: str = field(repr=False)
    set_at_us: int


@dataclass(frozen=True, slots=True)
class Totp:
    """An authenticator app."""

    user_id: str
    # Encrypted.
    secret: bytes = field(repr=False)
    last_step: int
    set_at_us: int


@dataclass(frozen=True, slots=True)
class OidcIdentity:
    identity_id: str
    user_id: str
    issuer: str
    subject: str = field(repr=False)
    created_at_us: int
    last_used_hour_us: int | None = None


@dataclass(frozen=True, slots=True)
class Invitation:
    invitation_id: str
    account_id: str
    email: str = field(repr=False)
    role: AccountRole
    invited_by: str
    created_at_us: int
    expires_at_us: int


def _network_of(address: str, ipv4_bits: int, ipv6_bits: int) -> str:
    try:
        parsed = ipaddress.ip_address(address.strip().strip("[]").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    bits = ipv4_bits if parsed.version == 4 else ipv6_bits
    return str(ipaddress.ip_network(f"{parsed}/{bits}", strict=False))
