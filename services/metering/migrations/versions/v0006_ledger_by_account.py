"""Adds an index of the ledger by account, for statements.

On PostgreSQL the index of an existing ledger is built before this script runs, while requests are charged.
"""

from alembic import op

revision = "0006"
down_revision = "0005"

BUILT_CONCURRENTLY = {"ledger_by_account": ("ledger", "account_id, entry_id")}


def upgrade() -> None:
    for name, (table, columns) in BUILT_CONCURRENTLY.items():
        op.execute(f"CREATE INDEX IF NOT EXISTS {name} ON {table} ({columns})")
