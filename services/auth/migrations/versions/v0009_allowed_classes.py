"""Adds the model classes that accounts and keys may use."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
# Processes that do not know it would serve every class.
REFUSES_OLDER = True


def upgrade() -> None:
    # None: all classes, which is what every account and key has had so far.
    op.add_column("accounts", sa.Column("allowed_classes", sa.Text))
    op.add_column("api_keys", sa.Column("allowed_classes", sa.Text))
