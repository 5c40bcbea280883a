"""Grants of internal programs, which call for accounts without their keys."""

from dataclasses import dataclass

from services.auth.records.accounts import NO_LIMITS, KeyLimits


@dataclass(frozen=True, slots=True)
class CallerGrant:
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
