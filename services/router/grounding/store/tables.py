"""The tables of grounding, the same in SQLite and PostgreSQL. Times are microseconds since 1970.

Encrypted columns and the words of the index need the key, which the database never sees.
"""

from dataclasses import asdict
from typing import Any, Final

import sqlalchemy as sa

from services.chassis.sealing import Sealed
from services.router.grounding.records import Attachment, Note
from services.router.grounding.sealing import Sealer

metadata = sa.MetaData()

notes = sa.Table(
    "notes",
    metadata,
    sa.Column("note_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("key_version", sa.Integer, nullable=False),
    sa.Column("sealed_text", sa.LargeBinary, nullable=False),
    sa.Index("notes_by_age", "account_id", "created_at_us", "note_id"),
)

attachments = sa.Table(
    "attachments",
    metadata,
    sa.Column("attachment_id", sa.Text, primary_key=True),
    sa.Column("account_id", sa.Text, nullable=False),
    sa.Column("created_at_us", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("pages", sa.Integer, nullable=False),
    sa.Column("passages", sa.Integer, nullable=False),
    sa.Column("key_version", sa.Integer, nullable=False),
    sa.Column("sealed_name", sa.LargeBinary, nullable=False),
    sa.Index("attachments_by_age", "account_id", "created_at_us", "attachment_id"),
)

passages = sa.Table(
    "passages",
    metadata,
    # Random.
    sa.Column("passage_id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("attachment_id", sa.Text, sa.ForeignKey("attachments.attachment_id"), nullable=False),
    sa.Column("page", sa.Integer, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("key_version", sa.Integer, nullable=False),
    sa.Column("sealed_text", sa.LargeBinary, nullable=False),
    # In the document. None: it was added by a release that does not store it.
    sa.Column("position", sa.Integer),
    sa.Index("passages_by_attachment", "attachment_id"),
)

# Which passages contain a word, without its frequency.
postings = sa.Table(
    "postings",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("word", sa.LargeBinary, primary_key=True),
    sa.Column("passage_id", sa.BigInteger, sa.ForeignKey("passages.passage_id"), primary_key=True),
    sa.Index("postings_by_passage", "passage_id"),
    sqlite_with_rowid=False,
)


# For which nothing is stored any more.
closed_accounts = sa.Table(
    "closed_accounts",
    metadata,
    sa.Column("account_id", sa.Text, primary_key=True),
    sa.Column("closed_at_us", sa.BigInteger, nullable=False),
)

# What an encrypted field is bound to besides its account and row.
KINDS: Final = {"text": "note", "name": "name"}


def delete_for_good(connection: sa.Connection, table: sa.Table, *conditions: sa.ColumnElement[bool]) -> int:
    """Deletes rows and returns their number. Call `empty_write_log` after the commit."""
    return change_for_good(connection, table.delete().where(*conditions))


def change_for_good(connection: sa.Connection, change: sa.Delete | sa.Update) -> int:
    """Changes rows, so that the space of what they were is overwritten, and returns their number."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("PRAGMA secure_delete = ON")
    return connection.execute(change).rowcount


def seal_row(sealer: Sealer, record: Note | Attachment, row_id: str, field: str) -> dict[str, Any]:
    """Returns the row of a record, by column; this field, a text, is encrypted."""
    values = asdict(record)
    sealed = sealer.seal(values.pop(field), record.account_id, KINDS[field], row_id)
    return values | {"key_version": sealed.key_version, f"sealed_{field}": sealed.data}


def open_row(sealer: Sealer, row: sa.Row[Any], row_id: str, field: str) -> dict[str, Any]:
    """Returns the values of a record by the fields, from its row; what cannot be decrypted is empty."""
    values = dict(row._mapping)
    sealed = Sealed(values.pop("key_version"), values.pop(f"sealed_{field}"))
    return values | {field: sealer.open(sealed, row.account_id, KINDS[field], row_id) or ""}
