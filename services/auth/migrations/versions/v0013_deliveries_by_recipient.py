"""Replaces the index of deliveries by time with one by recipient, so that a recipient with many deliveries that are due
does not hold up the others.

On PostgreSQL the index of existing deliveries is built before this script runs, while notices are delivered.
"""

from alembic import op

revision = "0013"
down_revision = "0012"

BUILT_CONCURRENTLY = {
    "notice_deliveries_by_recipient": ("notice_deliveries", "state, recipient_id, next_attempt_at_us")
}


def upgrade() -> None:
    for name, (table, columns) in BUILT_CONCURRENTLY.items():
        op.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({columns})")
    op.execute("DROP INDEX notice_deliveries_by_state")
