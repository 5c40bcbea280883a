"""Limits as requests give them, and how long a change takes until every edge knows it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields, replace
from typing import Final

from services.auth import checks
from services.auth.records.accounts import KeyLimits

# Callers accept a cached key for at most 800 ms after they asked about it; the rest allows for clock drift. So long
# after a commit, nobody acts on the previous state. See docs/revocation.md.
HOLDS_EVERYWHERE_AFTER_S: Final = 0.85

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class GivenLimits:
    """Requested changes of limits. None keeps a limit, 0 removes it."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent_requests: int | None = None

    def checked(self) -> Callable[[KeyLimits], KeyLimits]:
        """Validates them; returns how to change the limits."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        kept = {name: checks.limit(name, value) for name, value in given.items() if value is not None}
        return lambda limits: replace(limits, **kept)
