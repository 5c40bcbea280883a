"""Adds to the changes that auth's audit log takes over what they changed. Older processes do not know the column."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.add_column("account_changes", sa.Column("changes", sa.Text))
