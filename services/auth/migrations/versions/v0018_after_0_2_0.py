"""Creates what came after 0.2.0: the grants of internal callers, and which keys their requests are counted under; where
the copy of the audit log ends, and what its events changed; when an account was closed for good.

Older processes do not name these columns, and leave them empty. The unique index is on one of them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0013"
# PostgreSQL builds them before this script runs, while keys are used and changed.
BUILT_CONCURRENTLY = {
    "api_keys_by_account_expiry": ("api_keys", "account_id, expires_at_us"),
    "audit_events_by_object": ("audit_events", "object_id, event_no"),
}


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
    op.add_column("audit_head", sa.Column("copied_from_no", sa.BigInteger))
    op.add_column("audit_events", sa.Column("changes", sa.Text))
    op.add_column("accounts", sa.Column("closed_at_us", sa.BigInteger))
    for name, (table, columns) in BUILT_CONCURRENTLY.items():
        op.create_index(name, table, columns.split(", "), if_not_exists=True)
