"""Adds an index of usage by key, for the costs of a page of keys.

A chat changes a counter that exists without touching the index: it grows by one row for each key, class and hour. On
PostgreSQL the index of existing counters is built before this script runs, while requests are charged.
"""

from alembic import op

revision = "0010"
down_revision = "0009"

BUILT_CONCURRENTLY = {"usage_hours_by_key": ("usage_hours", "account_id, key_id, hour_us")}


def upgrade() -> None:
    for name, (table, columns) in BUILT_CONCURRENTLY.items():
        op.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({columns})")
