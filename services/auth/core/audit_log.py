"""Writes the audit log: who did what to which object and what changed, never a name, an address, a key or content.

Each event is authenticated together with the code of the one before, under a pepper that the database never sees, and
so is the number of the last event that was pruned. With the database alone, no event can be changed, added or removed
unnoticed, other than the newest by putting back an older copy: the number of events tells.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from services.auth.core.changes import allowed_changes
from services.auth.core.peppers import Peppers
from services.auth.core.records.audit import AuditEvent, AuditStart, ChainedEvent, Outcome
from services.auth.core.records.users import UserSession
from services.auth.core.store import Connection, get
from services.auth.core.store import audit as stored
from services.auth.core.times import to_micros
from services.chassis.access_tokens import Access
from services.chassis.changes import Change
from services.chassis.timing.deadlines import Clock

BROKEN_LISTED_MOST: Final = 100


class AuditLog:
    def __init__(self, peppers: Peppers, clock: Clock) -> None:
        self._peppers = peppers
        self._clock = clock

    def append(
        self,
        connection: Connection,
        action: str,
        by: Access | UserSession | None = None,
        *,
        account_id: str = "",
        object_id: str = "",
        user_id: str = "",
        session_id: str = "",
        network: str = "",
        outcome: Outcome = Outcome.DONE,
        changes: Iterable[Change] = (),
        occurred_at_us: int | None = None,
    ) -> None:
        """Appends an event, last in the transaction of what it tells. `by` is who did it, if they had signed in before;
        None: the command line, or `user_id` by signing in, or elsewhere. The network is the session's unless it is
        given. Unless it says when, it occurred now."""
        if by is not None:
            user_id, session_id = by.user_id, by.session_id
        if session_id and not network:
            session = by if isinstance(by, UserSession) else get(connection, UserSession, session_id)
            network = session.network if session else ""
        at_us = to_micros(self._clock.now()) if occurred_at_us is None else occurred_at_us
        last_no, previous = stored.read_head(connection, locks=True)
        ids = (user_id, account_id, object_id, session_id)
        event = AuditEvent(last_no + 1, at_us, action, *ids, network, outcome, allowed_changes(changes))
        version = self._peppers.newest
        stored.add_event(connection, ChainedEvent(event, version, previous, self._code_of(version, previous, event)))

    def prune_until(self, connection: Connection, event_no: int) -> None:
        """Has the log start after an event. Those before are deleted afterwards, in portions."""
        version = self._peppers.newest
        stored.move_start(connection, AuditStart(event_no, version, self._start_code(version, event_no)))

    def verify(self, connection: Connection) -> tuple[int, list[int]]:
        """Recomputes the chain; returns how many events there are, and those at which it is broken. Call it on one
        snapshot."""
        events, broken = 0, []
        start = stored.read_start(connection)
        if not self._is_genuine_start(start):
            broken.append(start.pruned_no)
        last_no, last_code = start.pruned_no, b""
        for chained in stored.read_chain(connection):
            event = chained.event
            if events:
                follows = event.event_no == last_no + 1 and chained.previous_code == last_code
            else:
                # Of the pruned ones, some may not be deleted yet.
                follows = event.event_no <= start.pruned_no + 1
            if not (follows and self.is_genuine(chained)):
                broken.append(event.event_no)
            events, last_no, last_code = events + 1, event.event_no, chained.code
        head_no, head_code = stored.read_head(connection)
        if head_no != last_no or (events and head_code != last_code):
            # The newest were removed.
            broken.append(last_no + 1)
        return events, broken[:BROKEN_LISTED_MOST]

    def is_genuine(self, chained: ChainedEvent) -> bool:
        """Returns whether an event was written with the pepper, after the one that it names by its code."""
        event, version, previous, code = chained
        return self._peppers.has(version) and self._code_of(version, previous, event) == code

    def end_code(self, first_no: int, last: ChainedEvent) -> bytes | None:
        """Authenticates the end of a segment of the copy; None: without the pepper of its last event."""
        version = last.pepper_version
        if not self._peppers.has(version):
            return None
        return self._peppers.authenticate(version, "end of a segment", str(first_no).encode() + last.code)

    def _is_genuine_start(self, start: AuditStart) -> bool:
        if not start.pruned_no:
            return True
        version = start.pepper_version
        return self._peppers.has(version) and self._start_code(version, start.pruned_no) == start.code

    def _start_code(self, version: int, pruned_no: int) -> bytes:
        return self._peppers.authenticate(version, "start of the audit log", str(pruned_no).encode())

    def _code_of(self, version: int, previous: bytes, event: AuditEvent) -> bytes:
        return self._peppers.authenticate(version, "audit log", previous + msgspec.json.encode(event))
