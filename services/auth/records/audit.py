"""Events of the audit log."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class AuditEvent:
    event_no: int
    occurred_at_us: int
    action: str
    # Empty: the command line.
    user_id: str
    account_id: str
    object_id: str
    session_id: str
    network: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class AuditStart:
    """The start of the audit log, once older events are pruned: authenticated like an event."""

    # The last event that was pruned; 0: none.
    pruned_no: int
    pepper_version: int
    code: bytes | None
