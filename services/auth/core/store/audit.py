"""Stores the audit log: a chain in which each event has the code of the one before it."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from services.auth.core.records.audit import AuditEvent, AuditStart, ChainedEvent, Outcome
from services.auth.core.store.tables import audit_events, audit_head, recorded_changes
from services.chassis.database.insert import insert_into
from services.chassis.database.records import add, to_record

_BATCH: Final = 1_000
# Built once: it is read whenever somebody looks for new events, which is all the time.
_HEAD: Final = sa.select(audit_head.c.event_no, audit_head.c.code)


def read_head(connection: sa.Connection, *, locks: bool = False) -> tuple[int, bytes]:
    """Returns the number and the code of the last event. If it `locks`, others that append wait until the commit: do so
    after every other lock."""
    event_no, code = connection.execute(_HEAD.with_for_update() if locks else _HEAD).one()
    return event_no, code


def add_event(connection: sa.Connection, chained: ChainedEvent) -> None:
    """Adds an event to the end of the chain, which is locked."""
    event, pepper_version, previous_code, code = chained
    add(connection, event, pepper_version=pepper_version, previous_code=previous_code, code=code)
    connection.execute(audit_head.update().values(event_no=event.event_no, code=code))


def record_change(connection: sa.Connection, change_id: str, now_us: int) -> bool:
    """Records that the log has a change of another service; False if it has it already."""
    statement = insert_into(connection, recorded_changes).values(change_id=change_id, recorded_at_us=now_us)
    added = statement.on_conflict_do_nothing().returning(recorded_changes.c.change_id)
    return connection.execute(added).first() is not None


def forget_changes(connection: sa.Connection, recorded_before_us: int) -> None:
    """Forgets changes that are not offered again."""
    connection.execute(recorded_changes.delete().where(recorded_changes.c.recorded_at_us < recorded_before_us))


def find_last_before(connection: sa.Connection, time_us: int) -> int:
    """Returns the number of the last event that is, like all before it, older than a time; 0: none."""
    oldest = connection.scalar(sa.select(sa.func.min(audit_events.c.event_no)))
    is_newer = audit_events.c.occurred_at_us >= time_us
    first_kept = connection.scalar(
        sa.select(audit_events.c.event_no).where(is_newer).order_by(audit_events.c.event_no).limit(1)
    )
    last = read_head(connection)[0] if first_kept is None else first_kept - 1
    return last if oldest is not None and oldest <= last else 0


def read_start(connection: sa.Connection) -> AuditStart:
    """Reads where the log starts."""
    row = connection.execute(
        sa.select(audit_head.c.pruned_no, audit_head.c.pruned_pepper_version, audit_head.c.pruned_code)
    ).one()
    return AuditStart(*row)


def move_start(connection: sa.Connection, start: AuditStart) -> None:
    """Has the log start after an event, never before one that it started after already."""
    connection.execute(
        audit_head.update()
        .where(audit_head.c.pruned_no < start.pruned_no)
        .values(pruned_no=start.pruned_no, pruned_pepper_version=start.pepper_version, pruned_code=start.code)
    )


def delete_pruned(connection: sa.Connection, most: int) -> int:
    """Deletes the oldest events before the start; returns how many."""
    pruned_no = connection.scalar(sa.select(audit_head.c.pruned_no))
    some = sa.select(audit_events.c.event_no).where(audit_events.c.event_no <= pruned_no)
    some = some.order_by(audit_events.c.event_no).limit(most)
    deleted = connection.execute(audit_events.delete().where(audit_events.c.event_no.in_(some.scalar_subquery())))
    return deleted.rowcount


class EventChoice(NamedTuple):
    """The events that are listed: those that everything that is given fits."""

    account_id: str = ""
    user_id: str = ""
    object_id: str = ""
    # May be the part before a dot.
    action: str = ""
    # From the first on, and before the second.
    start_us: int | None = None
    end_us: int | None = None
    only_refused: bool = False


ALL_EVENTS: Final = EventChoice()


def list_events(
    connection: sa.Connection, before: int | None, limit: int, choice: EventChoice = ALL_EVENTS
) -> list[ChainedEvent]:
    """Lists events, the newest first, before the one of a number."""
    columns, action = audit_events.c, choice.action
    query = sa.select(audit_events).order_by(columns.event_no.desc()).limit(limit)
    if before is not None:
        query = query.where(columns.event_no < before)
    for name in ("account_id", "user_id", "object_id"):
        if wanted := getattr(choice, name):
            query = query.where(columns[name] == wanted)
    if action:
        is_kind = sa.func.substr(columns.action, 1, len(action) + 1) == f"{action}."
        query = query.where(sa.or_(columns.action == action, is_kind))
    if choice.start_us is not None:
        query = query.where(columns.occurred_at_us >= choice.start_us)
    if choice.end_us is not None:
        query = query.where(columns.occurred_at_us < choice.end_us)
    if choice.only_refused:
        query = query.where(columns.outcome == Outcome.REFUSED)
    return [_to_chained(row) for row in connection.execute(query)]


def read_chain(connection: sa.Connection, after_no: int = 0, most: int | None = None) -> Iterator[ChainedEvent]:
    """Reads all events, or those after one, the oldest first."""
    query = sa.select(audit_events).where(audit_events.c.event_no > after_no).order_by(audit_events.c.event_no)
    for row in connection.execute(query.limit(most), execution_options={"yield_per": _BATCH}):
        yield _to_chained(row)


def list_chain(connection: sa.Connection, after_no: int, most: int) -> list[ChainedEvent]:
    return list(read_chain(connection, after_no, most))


def _to_chained(row: sa.Row[Any]) -> ChainedEvent:
    return ChainedEvent(to_record(AuditEvent, row), row.pepper_version, row.previous_code, row.code)


def read_copied_from(connection: sa.Connection) -> int:
    """Returns the first event of the last segment of the copy; 0: there is none."""
    return connection.execute(sa.select(audit_head.c.copied_from_no)).scalar_one() or 0


def record_copied(connection: sa.Connection, first_no: int) -> None:
    """Records that there is a segment of the copy that begins with an event."""
    is_behind = sa.func.coalesce(audit_head.c.copied_from_no, 0) < first_no
    connection.execute(audit_head.update().where(is_behind).values(copied_from_no=first_no))


def forget_copy(connection: sa.Connection) -> None:
    """Records that there is no copy any more."""
    connection.execute(audit_head.update().values(copied_from_no=None))
