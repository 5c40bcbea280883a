"""Adds the versions of files that the processes of a fleet have read. Older processes do not know the table."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0017"


def upgrade() -> None:
    op.create_table(
        "staged_files",
        sa.Column("file", sa.Text, primary_key=True),
        sa.Column("process_id", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("expires_us", sa.BigInteger, nullable=False),
    )
