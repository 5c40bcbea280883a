"""Creates the tables of notes, attachments, and the index of their words."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "notes",
        sa.Column("note_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("key_version", sa.Integer, nullable=False),
        sa.Column("sealed_text", sa.LargeBinary, nullable=False),
    )
    op.create_index("notes_by_age", "notes", ["account_id", "created_at_us", "note_id"])
    op.create_table(
        "attachments",
        sa.Column("attachment_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("pages", sa.Integer, nullable=False),
        sa.Column("passages", sa.Integer, nullable=False),
        sa.Column("key_version", sa.Integer, nullable=False),
        sa.Column("sealed_name", sa.LargeBinary, nullable=False),
    )
    op.create_index("attachments_by_age", "attachments", ["account_id", "created_at_us", "attachment_id"])
    op.create_table(
        "passages",
        sa.Column("passage_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("attachment_id", sa.Text, sa.ForeignKey("attachments.attachment_id"), nullable=False),
        sa.Column("page", sa.Integer, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("key_version", sa.Integer, nullable=False),
        sa.Column("sealed_text", sa.LargeBinary, nullable=False),
    )
    op.create_index("passages_by_attachment", "passages", ["attachment_id"])
    op.create_table(
        "postings",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("word", sa.LargeBinary, primary_key=True),
        sa.Column("passage_id", sa.BigInteger, sa.ForeignKey("passages.passage_id"), primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_index("postings_by_passage", "postings", ["passage_id"])
