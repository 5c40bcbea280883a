"""Auth's records: accounts, and the keys they own. Times are microseconds since 1970, in UTC."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum
from typing import Final

from services.auth.keys import StoredDigest
from services.chassis.model_classes import auto_class

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


class Scope(StrEnum):
    INFERENCE = "inference"
    MODELS = "models"
    USAGE = "usage"


class KeyState(Enum):
    ACTIVE = "active"
    REVOKED = "revoked"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of a key or an account. None inherits: a key from its account, an account from the service."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    def or_else(self, others: "KeyLimits") -> "KeyLimits":
        return KeyLimits(
            *(other if own is None else own for own, other in zip(self.values, others.values, strict=True))
        )

    @property
    def values(self) -> tuple[int | None, int | None, int | None]:
        return self.requests_per_minute, self.tokens_per_minute, self.concurrent_requests


NO_LIMITS = KeyLimits()


@dataclass(frozen=True, slots=True)
class ClassAllowance:
    """The model classes that an account or a key may use."""

    # The cheapest first. None: all, those of later releases too.
    class_ids: tuple[str, ...] | None = None

    def within(self, outer: "ClassAllowance") -> "ClassAllowance":
        """Returns what both allow, which may be nothing."""
        if self.class_ids is None:
            return outer
        return ClassAllowance(tuple(class_id for class_id in self.class_ids if class_id in outer))

    def auto_class(self, preferred_class: str) -> str:
        """Returns what `auto` means where this is allowed."""
        return auto_class(preferred_class, self)

    def __contains__(self, class_id: object) -> bool:
        return self.class_ids is None or class_id in self.class_ids


ALL_CLASSES: Final = ClassAllowance()


@dataclass(frozen=True, slots=True)
class GroundingPolicy:
    """The grounding that an account allows for plain chats, where the router is configured for it."""

    search: bool = True
    memory: bool = True
    attachments: bool = True


@dataclass(frozen=True, slots=True)
class Account:
    account_id: str
    name: str
    created_at_us: int
    # The class that `auto` selects for this account, where it is allowed.
    preferred_class: str
    # The default for its keys.
    limits: KeyLimits = NO_LIMITS
    # None: not suspended.
    suspended_at_us: int | None = None
    grounding: GroundingPolicy = GroundingPolicy()
    # What its keys may use.
    allowed_classes: ClassAllowance = ALL_CLASSES


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
    # The version of the pepper that its digest was made with.
    pepper_version: int
    limits: KeyLimits = NO_LIMITS
    # The start of the hour in which it was last accepted. None: never.
    last_used_hour_us: int | None = None
    # A user. Empty: the command line.
    created_by: str = ""
    # The key that it was made to replace.
    replaces_key_id: str | None = None
    # The user whose playground is counted under it; it has no secret. None: it is a key.
    playground_user_id: str | None = None
    # Never more than the account's, which is applied when the key is used.
    allowed_classes: ClassAllowance = ALL_CLASSES

    def state_at(self, now_us: int) -> KeyState:
        if self.revoked_at_us is not None:
            return KeyState.REVOKED
        if self.expires_at_us is not None and self.expires_at_us <= now_us:
            return KeyState.EXPIRED
        return KeyState.ACTIVE


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
    noted_peppers: str
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
class Position:
    """A position in a list, in order of creation, then of id; the next page begins after it."""

    created_at_us: int
    id: str


@dataclass(frozen=True, slots=True)
class PepperUse:
    """The number of keys that need one version of the pepper: those neither revoked nor expired."""

    pepper_version: int
    keys: int
    # The latest use of any of them.
    last_used_hour_us: int | None
