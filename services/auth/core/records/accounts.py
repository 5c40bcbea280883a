"""Accounts, and what they set for their keys."""

from dataclasses import dataclass
from typing import Final

from services.rules.model_classes import auto_class


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
    # None: not closed. A closed account is suspended, for good.
    closed_at_us: int | None = None
