"""Adds the grounding that an account allows: everything, unless it was switched off."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    for name in ("search", "memory", "attachments"):
        op.add_column("accounts", sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true()))
