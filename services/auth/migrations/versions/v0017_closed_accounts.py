"""Adds when an account was closed for good."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.add_column("accounts", sa.Column("closed_at_us", sa.BigInteger))
