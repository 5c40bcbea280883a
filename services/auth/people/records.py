"""Members of accounts."""

from dataclasses import dataclass

from services.auth.sign_in.records import UserSummary
from services.chassis.access_tokens import AccountRole


@dataclass(frozen=True, slots=True)
class Member:
    summary: UserSummary
    role: AccountRole
    joined_at_us: int
