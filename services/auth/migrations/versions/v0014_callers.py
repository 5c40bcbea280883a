"""Adds the grants of internal callers, and which keys their requests are counted under.

The index of keys is on a column that is added here, and is empty.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.create_table(
        "caller_grants",
        sa.Column("grant_id", sa.Text, primary_key=True),
        sa.Column("caller", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("revoked_at_us", sa.BigInteger),
        sa.Column("requests_per_minute", sa.BigInteger),
        sa.Column("tokens_per_minute", sa.BigInteger),
        sa.Column("concurrent_requests", sa.BigInteger),
        sa.Index("caller_grants_by_caller", "caller", "account_id", unique=True),
        sa.Index("caller_grants_by_age", "created_at_us", "grant_id"),
    )
    op.add_column("api_keys", sa.Column("caller_name", sa.Text))
    op.create_index("api_keys_by_caller", "api_keys", ["caller_name", "account_id"], unique=True)
