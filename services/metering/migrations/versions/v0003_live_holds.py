"""Adds an index to count a key's concurrent requests by its live holds."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    is_live = sa.text("state = 'held'")
    columns = ["key_id", "account_id"]
    op.create_index("live_holds_by_key", "holds", columns, postgresql_where=is_live, sqlite_where=is_live)
