"""Adds playground tokens, and the keys without a secret that their requests are counted under."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("playground_user_id", sa.Text))
    op.create_index("api_keys_by_playground", "api_keys", ["account_id", "playground_user_id"], unique=True)
    op.create_table(
        "playground_tokens",
        sa.Column("token_id", sa.Text, primary_key=True),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("pepper_version", sa.Integer, nullable=False),
        sa.Column("key_id", sa.Text, sa.ForeignKey("api_keys.key_id"), nullable=False),
        sa.Column("session_id", sa.Text, sa.ForeignKey("sessions.session_id"), nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("expires_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("playground_tokens_by_session", "playground_tokens", ["session_id", "created_at_us"])
    op.create_index("playground_tokens_by_key", "playground_tokens", ["key_id", "expires_at_us"])
