"""Records where the audit log starts, which changes it took over from metering, and who wants no mail of notices."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("audit_head", sa.Column("pruned_no", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("audit_head", sa.Column("pruned_pepper_version", sa.Integer, nullable=False, server_default="0"))
    op.add_column("audit_head", sa.Column("pruned_code", sa.LargeBinary))
    op.create_table(
        "recorded_changes",
        sa.Column("change_id", sa.Text, primary_key=True),
        sa.Column("recorded_at_us", sa.BigInteger, nullable=False),
    )
    op.create_index("recorded_changes_by_time", "recorded_changes", ["recorded_at_us"])
    op.add_column("memberships", sa.Column("is_mailed", sa.Boolean, nullable=False, server_default=sa.true()))
