"""Users, which accounts they belong to, and their sessions."""

from dataclasses import dataclass, field
from enum import StrEnum

from services.chassis.access_tokens import AccountRole


class SignInMethod(StrEnum):
    PASSKEY = "passkey"
    LINK = "link"
    RECOVERY_CODE = "recovery-code"
    INVITATION = "invitation"
    PASSWORD = "password"  # noqa: S105
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class User:
    user_id: str
    name: str
    # Empty: not known.
    email: str = field(repr=False)
    created_at_us: int
    is_operator: bool = False
    # None: not disabled.
    disabled_at_us: int | None = None
    # The start of the hour in which a session was last used.
    last_seen_hour_us: int | None = None


@dataclass(frozen=True, slots=True)
class Membership:
    account_id: str
    account_name: str
    user_id: str
    role: AccountRole
    joined_at_us: int
    is_suspended: bool
    is_closed: bool


@dataclass(frozen=True, slots=True)
class UserSession:
    session_id: str
    user_id: str
    created_at_us: int
    # When the user last proved who they are in it.
    authenticated_at_us: int
    # To the minute.
    last_seen_us: int
    network: str
    browser: str
    method: SignInMethod
    # Its next use gets a new token.
    replace_due: bool = False
