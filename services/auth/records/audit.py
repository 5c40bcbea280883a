"""Events of the audit log."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


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


class ChainedEvent(NamedTuple):
    """An event with what authenticates it after the one before: the version of the pepper, the code before and its
    own."""

    event: AuditEvent
    pepper_version: int
    previous_code: bytes
    code: bytes


@dataclass(frozen=True, slots=True)
class AuditStart:
    """The start of the audit log, once older events are pruned: authenticated like an event."""

    # The last event that was pruned; 0: none.
    pruned_no: int
    pepper_version: int
    code: bytes | None
