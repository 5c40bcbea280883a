"""Adds maintenance to the epoch's row, so that both are read together."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("epoch", sa.Column("maintenance_message", sa.Text))
    op.add_column("epoch", sa.Column("maintenance_retry_after_s", sa.Integer))
    op.add_column("epoch", sa.Column("maintenance_started_at_us", sa.BigInteger))
