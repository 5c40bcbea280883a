"""Adds an index of balance changes other than charges, whose sums are in the hourly counters.

Only rare kinds of entries are indexed: a charge costs nothing more.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    is_rare = sa.text("kind <> 'charge'")
    columns = ["account_id", "recorded_at_us", "entry_id"]
    op.create_index("ledger_credits_by_account", "ledger", columns, postgresql_where=is_rare, sqlite_where=is_rare)
