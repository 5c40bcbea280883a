"""Events of the audit log."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from services.chassis.changes import Change


class Outcome(StrEnum):
    DONE = "done"
    REFUSED = "refused"


class AuditEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event, which is authenticated as its JSON. A field that is added has a default, and is not in the JSON of
    events from before: their codes stay what they are."""

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
    # None: it changed no setting, or is of release 0.2 or earlier.
    changes: tuple[Change, ...] | None = None


class ChainedEvent(NamedTuple):
    """An event with what authenticates it after the one before: the version of the pepper, the code before and its
    own."""

    event: AuditEvent
    pepper_version: int
    previous_code: bytes
    code: bytes


class CopiedEvent(NamedTuple):
    """An event as a segment of the copy outside the database has it."""

    event: AuditEvent
    pepper_version: int
    previous_code: bytes
    code: bytes
    # Authenticates the last event of a segment as its last; None: another.
    end_code: bytes | None = None

    @property
    def chained(self) -> ChainedEvent:
        return ChainedEvent(self.event, self.pepper_version, self.previous_code, self.code)


@dataclass(frozen=True, slots=True)
class AuditStart:
    """The start of the audit log, once older events are pruned: authenticated like an event."""

    # The last event that was pruned; 0: none.
    pruned_no: int
    pepper_version: int
    code: bytes | None
