"""Creates the spend limits of accounts and keys, with what they have spent.

The account's row says whether there are any, so that a request of an account without limits reads nothing more.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
# Processes that do not know it would not count what is spent.
REFUSES_OLDER = True

COUNTERS = ("day_us", "month_us", "day_spent_nanos", "month_spent_nanos", "total_spent_nanos", "held_nanos")


def upgrade() -> None:
    has_limits = sa.Column("has_spend_limits", sa.Boolean, nullable=False, server_default=sa.false())
    op.add_column("accounts", has_limits)
    op.create_table(
        "spends",
        sa.Column("spend_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("day_limit_nanos", sa.BigInteger),
        sa.Column("month_limit_nanos", sa.BigInteger),
        sa.Column("total_limit_nanos", sa.BigInteger),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTERS),
        sa.CheckConstraint("held_nanos >= 0 AND total_spent_nanos >= 0", name="spend_is_not_negative"),
    )
    op.create_index("spends_by_account", "spends", ["account_id", "key_id"], unique=True)
