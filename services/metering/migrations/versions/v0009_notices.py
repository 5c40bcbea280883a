"""Creates the outbox of notices to owners, and a threshold of the balance for each account."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    # None: the service's.
    op.add_column("accounts", sa.Column("low_balance_nanos", sa.BigInteger))
    op.create_table(
        "notices",
        sa.Column("notice_id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("amount_nanos", sa.BigInteger, nullable=False),
        sa.Column("threshold_nanos", sa.BigInteger, nullable=False),
        sa.Column("recorded_at_us", sa.BigInteger, nullable=False),
        sa.Column("acknowledged_at_us", sa.BigInteger),
    )
    op.create_index("notices_by_acknowledgement", "notices", ["acknowledged_at_us", "recorded_at_us"])
