"""Lets a key that replaces another share its spend limits.

Its row names that of the other key, which counts for both. Few rows do.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    shared = sa.Column("shared_spend_id", sa.Text, nullable=False, server_default="")
    op.add_column("spends", shared)
    op.create_index(
        "spends_by_shared",
        "spends",
        ["shared_spend_id"],
        sqlite_where=sa.text("shared_spend_id <> ''"),
        postgresql_where=sa.text("shared_spend_id <> ''"),
    )
