"""Adds the peppers of the replica that started last, so that the next one notices a difference."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("epoch", sa.Column("peppers", sa.Text, nullable=False, server_default=""))
