"""Stores notes."""

from dataclasses import replace

import sqlalchemy as sa

from services.router.grounding.records import Note
from services.router.grounding.sealing import Sealer
from services.router.grounding.store.closed_accounts import require_open
from services.router.grounding.store.tables import delete_for_good, notes, open_row, seal_row


def add_note(connection: sa.Connection, sealer: Sealer, note: Note, most: int) -> bool:
    """Adds a note; returns False if the account has reached its limit."""
    kept = sa.select(sa.func.count()).select_from(notes).where(notes.c.account_id == note.account_id)
    if connection.execute(kept).scalar_one() >= most:
        return False
    connection.execute(notes.insert().values(seal_row(sealer, note, note.note_id, "text")))
    require_open(connection, note.account_id)
    return True


def update_note(connection: sa.Connection, sealer: Sealer, note: Note) -> Note | None:
    """Replaces a note, except for its time, and returns it; None if there is none."""
    is_it = (notes.c.account_id == note.account_id, notes.c.note_id == note.note_id)
    created_at_us = connection.execute(sa.select(notes.c.created_at_us).where(*is_it)).scalar_one_or_none()
    if created_at_us is None:
        return None
    updated = replace(note, created_at_us=created_at_us)
    delete_for_good(connection, notes, *is_it)
    connection.execute(notes.insert().values(seal_row(sealer, updated, note.note_id, "text")))
    require_open(connection, note.account_id)
    return updated


def list_notes(connection: sa.Connection, sealer: Sealer, account_id: str) -> list[Note]:
    """Returns the notes, oldest first; one that cannot be decrypted has no text."""
    query = sa.select(notes).where(notes.c.account_id == account_id).order_by(notes.c.created_at_us, notes.c.note_id)
    return [Note(**open_row(sealer, row, row.note_id, "text")) for row in connection.execute(query)]


def remove_notes(connection: sa.Connection, account_id: str, note_id: str | None = None) -> int:
    """Deletes this note of an account, or all, and returns their number."""
    conditions = [notes.c.account_id == account_id]
    if note_id is not None:
        conditions.append(notes.c.note_id == note_id)
    return delete_for_good(connection, notes, *conditions)
