"""Adds where the copy of the audit log outside the database ends."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("audit_head", sa.Column("copied_from_no", sa.BigInteger))
