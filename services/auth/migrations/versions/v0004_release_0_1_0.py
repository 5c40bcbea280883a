"""Creates what release 0.1.0 had: accounts, their keys, and the epoch that tells caches what changed."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = None

_LIMITS = ("requests_per_minute", "tokens_per_minute", "concurrent_requests")


def upgrade() -> None:
    op.create_table(
        "accounts",
        sa.Column("account_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at_us", sa.BigInteger, nullable=False),
        sa.Column("preferred_class", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in (*_LIMITS, "suspended_at_us")),
        *(
            sa.Column(name, sa.Boolean, nullable=False, server_default=sa.true())
            for name in ("search", "memory", "attachments")
        ),
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
        *(sa.Column(name, sa.BigInteger) for name in ("expires_at_us", "revoked_at_us", *_LIMITS, "last_used_hour_us")),
    )
    op.create_index("api_keys_by_age", "api_keys", ["account_id", "created_at_us", "key_id"])
    epoch = op.create_table(
        "epoch",
        sa.Column("row_no", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("value", sa.BigInteger, nullable=False),
        sa.Column("forgotten", sa.BigInteger, nullable=False),
        sa.Column("peppers", sa.Text, nullable=False, server_default=""),
        sa.CheckConstraint("row_no = 1", name="epoch_has_one_row"),
    )
    op.bulk_insert(epoch, [{"row_no": 1, "value": 1, "forgotten": 1}])
    op.create_table(
        "key_changes",
        sa.Column("epoch", sa.BigInteger, primary_key=True),
        sa.Column("key_id", sa.Text, primary_key=True),
    )
