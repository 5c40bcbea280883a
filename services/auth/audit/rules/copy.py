"""Copies the audit log to a folder or a bucket outside the database, and brings a restored database up to it.

The copy is one chain of segments, each an object that is created and never changed, named by its first event. All
replicas write to it: of those that create the same segment one does, and the others go on after it. An event is in the
copy within a second of its commit; if the copy cannot be written, events stay in the database, and follow.

A database from a backup ends earlier than its copy. Before auth serves, the events that it does not have are applied to
it and appended to its log, so that what was ended stays ended. See docs/revocation.md.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import msgspec

from services.auth.audit.rules.copy_end import CopyEnd
from services.auth.audit.store.replay import end_all_sign_ins, replay
from services.auth.core.audit_log import AuditLog
from services.auth.core.records.audit import ChainedEvent, CopiedEvent
from services.auth.core.store import Connection
from services.auth.core.store import audit as stored
from services.chassis.database.database import Database
from services.chassis.errors import LegatoError
from services.chassis.object_store import ObjectStore
from services.chassis.settings import SettingsError
from services.chassis.telemetry.full_disks import is_of_full_disk
from services.chassis.telemetry.log import Log

# How often the database is asked for new events.
INTERVAL_S: Final = 0.5
SEGMENT_EVENTS: Final = 500
CLOSE_TIMEOUT_S: Final = 3.0
_FOLDER: Final = "audit-events"
_NAMED: Final = re.compile(f"{_FOLDER}/([0-9]{{20}})[.]jsonl")


class CopyBroken(SettingsError):
    """The copy and the database do not belong together, or a part of the copy is missing."""


class AuditCopy:
    def __init__(
        self,
        database: Database,
        audit: AuditLog,
        store: ObjectStore,
        log: Log,
        end: CopyEnd | None = None,
        on_full: Callable[[bool], None] = lambda is_full: None,
    ) -> None:
        """Records in `end` how far the copy reaches; `on_full` is told whether its disk is full."""
        self._database = database
        self._audit = audit
        self._store = store
        self._log = log
        self._end = end
        self._on_full = on_full
        # The last event of the copy.
        self._last_no = 0
        self._last_code = b""
        # Since when there are events that the copy does not have, by the monotonic clock; None: it has all.
        self._behind_since_s: float | None = None
        self._is_writable = True

    @property
    def lag_s(self) -> float:
        """The time for which events have been waiting for the copy."""
        since_s = self._behind_since_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    async def open(self, lost_after: int = 0) -> None:
        """Applies events that the database does not have, before anything is served. Raises CopyBroken if the copy does
        not continue the database's log. If it is lost, and the database says that its last segment begins with the
        event `lost_after`, a new one begins."""
        copied_from = await self._database.read(stored.read_copied_from)
        head_no, head_code = await self._database.read(stored.read_head)
        try:
            is_first = True
            async for segment in self._segments(copied_from):
                first_no = segment[0].event.event_no
                if is_first and first_no > (copied_from or head_no + 1):
                    raise _missing(copied_from) if copied_from else _broken(first_no, "events before it are missing")
                self._follow(segment, head_no, head_code, is_first=is_first)
                if first_no > copied_from:
                    # The database has all of those that it knows of.
                    self._require_end(segment)
                is_first = False
                if self._last_no > head_no:
                    await self._apply(segment)
            if not is_first:
                self._require_reached(head_no)
            elif copied_from:
                await self._begin_anew(copied_from, lost_after)
        except OSError as error:
            raise SettingsError(f"LEGATO_AUDIT_COPY: cannot be read: {error}") from None
        for known in await self._database.read(stored.list_chain, self._last_no - 1, 1):
            if known.event.event_no == self._last_no and known.code != self._last_code:
                raise _broken(self._last_no, "the database has another event in its place")

    async def _begin_anew(self, copied_from: int, lost_after: int) -> None:
        if copied_from != lost_after:
            raise _missing(copied_from)
        await self._database.write(stored.forget_copy)
        self._log.warning("audit_copy.begun_anew")

    async def run(self) -> None:
        """Copies new events until cancelled."""
        while True:
            await self._copy_all()
            await asyncio.sleep(INTERVAL_S)

    async def close(self) -> None:
        """Copies what the last calls did, unless that takes long: the next process copies it, too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._copy_all()

    async def _copy_all(self) -> None:
        try:
            while await self.copy_segment():
                pass
        except (LegatoError, OSError, CopyBroken) as error:
            self._record_writable(error)
        else:
            self._record_writable(None)

    async def copy_segment(self) -> bool:
        """Writes the next events as a segment; returns whether there may be more."""
        head_no, _ = await self._database.read_in_place(stored.read_head)
        if head_no <= self._last_no:
            self._behind_since_s = None
            return False
        if self._behind_since_s is None:
            self._behind_since_s = time.monotonic()
        found = await self._database.read(stored.list_chain, self._last_no, SEGMENT_EVENTS)
        first_no = found[0].event.event_no
        if self._last_no and (first_no != self._last_no + 1 or found[0].previous_code != self._last_code):
            raise _broken(first_no, "it is not the event that the copy has before it")
        name, content = _name_of(first_no), self._to_segment(found)
        try:
            await asyncio.to_thread(self._store.put, name, content)
        except FileExistsError:
            # Another replica was first; or this one, which did not hear of it.
            existing = _parse(await asyncio.to_thread(self._store.get, name), first_no)
            if existing[0].chained != found[0]:
                raise _broken(first_no, "the copy has another event in its place") from None
            found = [each.chained for each in existing]
        self._last_no, self._last_code = found[-1].event.event_no, found[-1].code
        if self._end is not None:
            with contextlib.suppress(OSError):
                # Where it cannot be written, the loss of whole segments may go unnoticed, and nothing else.
                await asyncio.to_thread(self._end.record, self._last_no)
        await self._database.write(stored.record_copied, first_no)
        return True

    async def _segments(self, first_no: int) -> AsyncIterator[list[CopiedEvent]]:
        """Reads the segments from one on, or all."""
        after = _name_of(first_no - 1) if first_no else ""
        for name in await asyncio.to_thread(self._store.list, _FOLDER, after=after):
            named = _NAMED.fullmatch(name)
            if named is None:
                raise CopyBroken(f"LEGATO_AUDIT_COPY: {name!a} is no segment of a copy of the audit log: move it away")
            yield _parse(await asyncio.to_thread(self._store.get, name), int(named[1]))

    def _to_segment(self, events: list[ChainedEvent]) -> bytes:
        end = self._audit.end_code(events[0].event.event_no, events[-1])
        lines: list[ChainedEvent | CopiedEvent] = [*events[:-1], CopiedEvent(*events[-1], end)]
        return b"".join(msgspec.json.encode(each) + b"\n" for each in lines)

    def _require_end(self, segment: list[CopiedEvent]) -> None:
        """Raises if the last events of a segment are missing: the chain does not tell."""
        first_no, last = segment[0].event.event_no, segment[-1]
        if last.end_code != self._audit.end_code(first_no, last.chained):
            raise _broken(first_no, "its segment does not end where it ended")

    def _require_reached(self, head_no: int) -> None:
        """Raises if the last segments are missing, and the database does not have their events either: the chain does
        not tell."""
        if self._end is not None and (reached := self._end.read()) > max(self._last_no, head_no):
            raise CopyBroken(
                f"LEGATO_AUDIT_COPY: the copy of the audit log ends with event {self._last_no}, and this machine has "
                f"copied up to event {reached}. Name the folder or bucket that has all; or, if the rest is lost and "
                f"what was revoked by it may be valid again, remove {self._end.path}"
            )

    def _follow(self, segment: list[CopiedEvent], head_no: int, head_code: bytes, *, is_first: bool) -> None:
        """Checks that a segment continues those before it and the database's log."""
        if is_first:
            self._last_no, self._last_code = segment[0].event.event_no - 1, segment[0].previous_code
        for copied in segment:
            chained, event_no = copied.chained, copied.event.event_no
            if event_no != self._last_no + 1 or chained.previous_code != self._last_code:
                raise _broken(event_no, "it does not follow the event before it")
            if event_no > head_no and not self._audit.is_genuine(chained):
                raise _broken(event_no, "it was not written with a pepper in LEGATO_KEY_PEPPERS")
            is_known = event_no != head_no or chained.code == head_code
            if not is_known or (event_no == head_no + 1 and chained.previous_code != head_code):
                raise _broken(event_no, "the database has another event in its place")
            self._last_no, self._last_code = event_no, chained.code

    async def _apply(self, segment: list[CopiedEvent]) -> None:
        """Applies what the database does not have of a segment, in one transaction."""

        def apply(connection: Connection) -> int:
            events = 0
            for copied in segment:
                chained = copied.chained
                last_no, last_code = stored.read_head(connection, locks=True)
                if chained.event.event_no <= last_no:
                    # Also if another replica applies the same.
                    continue
                if chained.event.event_no != last_no + 1 or chained.previous_code != last_code:
                    raise _broken(chained.event.event_no, "the database has another event in its place")
                replay(connection, chained.event)
                stored.add_event(connection, chained)
                events += 1
            if events:
                end_all_sign_ins(connection)
            return events

        events = await self._database.write(apply)
        if events:
            self._log.warning("audit_copy.replayed", entries=events)

    def _record_writable(self, error: Exception | None) -> None:
        self._on_full(is_of_full_disk(error))
        is_writable = error is None
        if is_writable != self._is_writable:
            self._is_writable = is_writable
            if error is None:
                self._log.info("audit_copy.written_again")
            else:
                self._log.warning("audit_copy.not_written", reason=str(error))


def _name_of(first_no: int) -> str:
    return f"{_FOLDER}/{first_no:020}.jsonl"


def _parse(content: bytes, first_no: int) -> list[CopiedEvent]:
    with contextlib.suppress(msgspec.MsgspecError):
        events = msgspec.json.Decoder(CopiedEvent).decode_lines(content)
        if events and events[0].event.event_no == first_no:
            return events
    raise _broken(first_no, "its segment is damaged")


def _broken(event_no: int, reason: str) -> CopyBroken:
    return CopyBroken(
        f"LEGATO_AUDIT_COPY: event {event_no} of the copy of the audit log does not fit: {reason}. Name the folder or "
        "bucket that belongs to this database; or, to go on without it, an empty one"
    )


def _missing(copied_from: int) -> CopyBroken:
    return CopyBroken(
        "LEGATO_AUDIT_COPY: the copy of the audit log is missing: the database has written a segment that begins with "
        f"event {copied_from}. Name the folder or bucket that has it; or, if it is lost and what was revoked since the "
        f"backup may be valid again, set LEGATO_AUDIT_COPY_LOST_AFTER={copied_from}"
    )
