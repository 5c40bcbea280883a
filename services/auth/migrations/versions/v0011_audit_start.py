"""Records where the audit log starts."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("audit_head", sa.Column("pruned_no", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("audit_head", sa.Column("pruned_pepper_version", sa.Integer, nullable=False, server_default="0"))
    op.add_column("audit_head", sa.Column("pruned_code", sa.LargeBinary))
