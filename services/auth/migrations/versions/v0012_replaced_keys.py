"""Adds an index of keys by the one that they replace, so that the page of a key need not list the account's keys.

On PostgreSQL the index of existing keys is built before this script runs, while keys are created.
"""

from alembic import op

revision = "0012"
down_revision = "0011"

BUILT_CONCURRENTLY = {"api_keys_by_replaced": ("api_keys", "replaces_key_id")}


def upgrade() -> None:
    for name, (table, columns) in BUILT_CONCURRENTLY.items():
        op.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({columns})")
