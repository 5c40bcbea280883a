"""Creates accounts, their keys, and the epoch that tells caches what changed."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("preferred_class", sa.Text, nullable=False),
        sa.Column("requests_per_minute", sa.BigInteger),
    )
    op.create_index("accounts_by_age", "accounts", ["created_at_us", "account_id"])
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("account_id", sa.Text, sa.ForeignKey("accounts.account_id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("pepper_version", sa.Integer, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("expires_at_us", sa.BigInteger),
        sa.Column("revoked_at_us", sa.BigInteger),
    )
    op.create_index("api_keys_by_age", "api_keys", ["account_id", "created_at_us", "key_id"])
    epoch = op.create_table(
        "epoch",
        sa.Column("row_no", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.Column("forgotten", sa.BigInteger, nullable=False),
        sa.CheckConstraint("row_no = 1", name="epoch_has_one_row"),
    )
    op.bulk_insert(epoch, [{"row_no": 1, "value": 1, "forgotten": 1}])
    op.create_table(
        "key_changes",
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("key_id", sa.Text, primary_key=True),
    )
