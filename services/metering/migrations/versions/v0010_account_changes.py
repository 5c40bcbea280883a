"""Creates the outbox of changes to accounts, for the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "account_changes",
        sa.Column("change_id", sa.Text, primary_key=True),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("recorded_at_us", sa.BigInteger, nullable=False),
    )
