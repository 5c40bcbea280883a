"""Stores notes."""

from dataclasses import dataclass, replace

import sqlalchemy as sa

from services.chassis.sealing import Sealed
from services.router.grounding.store.tables import delete_for_good, notes


@dataclass(frozen=True, slots=True)
class SealedNote:
    note_id: str
    account_id: str
    created_at_us: int
    tokens: int
    text: Sealed


def add_note(connection: sa.Connection, note: SealedNote, most: int) -> bool:
    """Adds a note; returns False if the account has reached its limit."""
    kept = sa.select(sa.func.count()).select_from(notes).where(notes.c.account_id == note.account_id)
    if connection.execute(kept).scalar_one() >= most:
        return False
    _insert(connection, note)
    return True


def update_note(connection: sa.Connection, note: SealedNote) -> SealedNote | None:
    """Replaces a note, except for its time, and returns it; None if there is none."""
    is_it = (notes.c.account_id == note.account_id, notes.c.note_id == note.note_id)
    created_at_us = connection.execute(sa.select(notes.c.created_at_us).where(*is_it)).scalar_one_or_none()
    if created_at_us is None:
        return None
    updated = replace(note, created_at_us=created_at_us)
    delete_for_good(connection, notes, *is_it)
    _insert(connection, updated)
    return updated


def _insert(connection: sa.Connection, note: SealedNote) -> None:
    connection.execute(
        notes.insert().values(
            note_id=note.note_id,
            account_id=note.account_id,
            created_at_us=note.created_at_us,
            tokens=note.tokens,
            key_version=note.text.key_version,
            sealed_text=note.text.data,
        )
    )


def list_notes(connection: sa.Connection, account_id: str) -> list[SealedNote]:
    """Returns the notes, oldest first."""
    query = sa.select(notes).where(notes.c.account_id == account_id).order_by(notes.c.created_at_us, notes.c.note_id)
    return [
        SealedNote(row.note_id, account_id, row.created_at_us, row.tokens, Sealed(row.key_version, row.sealed_text))
        for row in connection.execute(query)
    ]


def remove_note(connection: sa.Connection, account_id: str, note_id: str) -> bool:
    """Deletes a note; returns False if there is none."""
    return delete_for_good(connection, notes, notes.c.account_id == account_id, notes.c.note_id == note_id) > 0


def remove_notes(connection: sa.Connection, account_id: str) -> int:
    """Deletes all notes of an account, and returns their number."""
    return delete_for_good(connection, notes, notes.c.account_id == account_id)
