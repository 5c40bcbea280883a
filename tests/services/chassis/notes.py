"""A table of notes, with the migration that makes it."""

from collections.abc import Callable

import sqlalchemy as sa

ENVIRONMENT = """
from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table="schema_version")
context.run_migrations()
"""

# Fails if it is applied twice.
MIGRATION = """
from alembic import op
import sqlalchemy as sa

revision = "0001"
down_revision = None


def upgrade() -> None:
    notes = op.create_table("notes", sa.Column("note_id", sa.BigInteger, primary_key=True))
    op.bulk_insert(notes, [{"note_id": 1}])
"""

notes = sa.table("notes", sa.column("note_id", sa.BigInteger))


def note_ids(connection: sa.Connection) -> list[int]:
    return list(connection.scalars(sa.select(notes.c.note_id).order_by(notes.c.note_id)))


def add(*note_ids: int) -> Callable[[sa.Connection], None]:
    def change(connection: sa.Connection) -> None:
        for note_id in note_ids:
            connection.execute(sa.insert(notes).values(note_id=note_id))

    return change
