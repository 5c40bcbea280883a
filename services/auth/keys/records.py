"""Keys, grants of internal programs, what verifying a key needs, and what tells callers of changes."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum

from services.auth.core.peppers import StoredDigest
from services.auth.core.records.accounts import ALL_CLASSES, NO_LIMITS, ClassAllowance, GroundingPolicy, KeyLimits


class Scope(StrEnum):
    INFERENCE = "inference"
    MODELS = "models"
    USAGE = "usage"


@dataclass(frozen=True, slots=True)
class KeySpendLimits:
    """Limits of what a key spends in a day, in a month and in all; None is unlimited."""

    day_nanos: int | None = None
    month_nanos: int | None = None
    total_nanos: int | None = None


NO_SPEND_LIMITS = KeySpendLimits()


class KeyState(Enum):
    ACTIVE = "active"
    REVOKED = "revoked"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Key:
    key_id: str
    account_id: str
    name: str
    # Empty means all scopes.
    scopes: tuple[Scope, ...]
    created_at_us: int
    # None: never.
    expires_at_us: int | None
    # None: not revoked.
    revoked_at_us: int | None
    # The version of the pepper that its digest was made with. 0: it has no secret.
    pepper_version: int
    limits: KeyLimits = NO_LIMITS
    # The start of the hour in which it was last accepted. None: never.
    last_used_hour_us: int | None = None
    # A user. Empty: the command line.
    created_by: str = ""
    # The key that it was made to replace.
    replaces_key_id: str | None = None
    # The user whose playground is counted under it, or the internal program that is. With either, it has no secret.
    playground_user_id: str | None = None
    caller_name: str | None = None
    # Never more than the account's, which is applied when the key is used.
    allowed_classes: ClassAllowance = ALL_CLASSES

    @property
    def has_secret(self) -> bool:
        return self.pepper_version > 0

    def state_at(self, now_us: int) -> KeyState:
        if self.revoked_at_us is not None:
            return KeyState.REVOKED
        if self.expires_at_us is not None and self.expires_at_us <= now_us:
            return KeyState.EXPIRED
        return KeyState.ACTIVE


@dataclass(frozen=True, slots=True)
class PlaygroundToken:
    """A token of a session, whose requests are counted under a key."""

    token_id: str
    digest: bytes = field(repr=False)
    pepper_version: int
    key_id: str
    session_id: str
    created_at_us: int
    expires_at_us: int


@dataclass(frozen=True, slots=True)
class MaintenanceNotice:
    """Maintenance, during which edges admit no new chats."""

    # The message for clients, and when they should retry.
    message: str
    retry_after_s: int
    started_at_us: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A key or playground token as verification needs it: with its digest, and with its account's settings."""

    key: Key
    digest: StoredDigest
    # The class that `auto` selects, one of the allowed.
    preferred_class: str
    # What both the account and the key allow.
    allowed_classes: ClassAllowance
    # The key's own limits, or else the account's.
    limits: KeyLimits
    is_suspended: bool
    grounding: GroundingPolicy
    # The peppers of the replica that started last.
    recorded_peppers: str
    # A playground token, which the digest and the expiry are of. Empty: the key itself.
    token_id: str = ""
    # The service's state, as of the epoch that was read with it.
    maintenance: MaintenanceNotice | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """The keys that changed after some epoch, up to `epoch`."""

    epoch: int
    key_ids: tuple[str, ...] = ()
    # Those of them that are now refused.
    refused_key_ids: tuple[str, ...] = ()
    # Too much has changed for a list: caches must drop everything from before `epoch`.
    has_gap: bool = False
    # As of `epoch`.
    maintenance: MaintenanceNotice | None = None


@dataclass(frozen=True, slots=True)
class PepperUse:
    """The number of keys that need one version of the pepper: those neither revoked nor expired."""

    pepper_version: int
    keys: int
    # The latest use of any of them.
    last_used_hour_us: int | None


@dataclass(frozen=True, slots=True)
class CallerGrant:
    """The right of an internal program to call for accounts without their keys."""

    grant_id: str
    # The name in its certificate.
    caller: str
    # Empty: all accounts, also those that are created later.
    account_id: str
    created_at_us: int
    # None: not revoked.
    revoked_at_us: int | None = None
    # For each account; what they leave out is the account's.
    limits: KeyLimits = NO_LIMITS
